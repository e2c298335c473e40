"""Every option of the package, by what it is given to: any connection, the source, the sink."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Protocol

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Address, Naming
from sqlqueue_spark.options.environment import MEANING_OF_URL, of_libpq
from sqlqueue_spark.options.fields import (
    Options,
    address,
    duration,
    option,
    option_per_name,
    positive,
    size,
    text,
)
from sqlqueue_spark.options.named_module import FUNCTION

_LONGEST_PATTERN = 1_000


def headroom(value: str) -> int | None:
    """A number of rows; None for ``auto``."""
    if value.lower() == "auto":
        return None
    if not value.isascii() or not value.isdigit() or int(value) >= 1 << 31:
        raise ValueError("auto, or a number of rows; 0 leaves none to others")
    return int(value)


def addresses(value: str) -> tuple[str, ...]:
    """A JSON list of addresses, at least one and none twice."""
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        given = None
    if not (isinstance(given, list) and given and all(isinstance(each, str) for each in given)):
        raise ValueError('a JSON list of addresses like ["orders", "billing"]')
    if len(set(given)) < len(given):
        raise ValueError("a list that names each queue once")
    return tuple(map(address, given))


def destinations(value: str) -> str:
    """Patterns of addresses, separated by commas, each perhaps with a plus before it."""
    for each in value.split(","):
        try:
            Address.parse(each.strip().removeprefix("+").strip())
        except ConfigurationError as error:
            raise ValueError(f"patterns of addresses, like billing, shop.*@[sales] ({error})") from None
    return value


def pattern(value: str) -> str:
    """A regular expression; it is compiled where it is used. A long one may take minutes for that."""
    if len(value) > _LONGEST_PATTERN:
        raise ValueError(f"a regular expression of at most {_LONGEST_PATTERN:,} characters")
    try:
        re.compile(text(value))
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"a regular expression ({error})") from None
    return value


def one_of(*values: str, refused: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """A parser that accepts one of these words, in upper or lower case.

    :param refused: words that other systems accept, each with the reason why it cannot be had here.
    """
    known = {value.lower(): value for value in values}
    why = {word.lower(): reason for word, reason in (refused or {}).items()}

    def parse(value: str) -> str:
        if value.lower() in known:
            return known[value.lower()]
        reason = why.get(value.lower())
        raise ValueError(" or ".join(values) + (f" ({reason})" if reason else ""))

    return parse


#: The token provider that stands for Microsoft's package of this name.
AZURE_IDENTITY = "azure-identity"


def token_provider(value: str) -> str:
    if value != AZURE_IDENTITY and not FUNCTION.fullmatch(value):
        raise ValueError(f"module:function or {AZURE_IDENTITY}")
    return value


RECEIVE_ONLY, ATOMIC, NO_TRANSACTION = "receiveOnly", "sendsAtomicWithReceive", "none"
OPTIMISTIC, PESSIMISTIC, NO_OUTBOX = "optimistic", "pessimistic", "none"

#: What source and sink are told alike.
_MODES = f"`{RECEIVE_ONLY}`, `{ATOMIC}` or `{NO_TRANSACTION}`; the same value on source and sink."
_STREAM = f"Names this pipeline; the same value on source and sink. Needed for `{ATOMIC}`; 40 bytes at most."

#: The caps of a micro-batch where no option says otherwise. The cap of locked rows holds on SQL Server
#: without row versions.
MOST_BATCH_ROWS = 1_000_000
MOST_LOCKED_BATCH_ROWS = 20_000
MOST_BATCH_BYTES = 1 << 30
_MOST_ROWS = f"`{MOST_BATCH_ROWS}`; on SQL Server without READ_COMMITTED_SNAPSHOT `{MOST_LOCKED_BATCH_ROWS}`"

transaction_mode = one_of(
    RECEIVE_ONLY,
    ATOMIC,
    NO_TRANSACTION,
    refused={
        "transactionScope": "Spark cannot enlist in a distributed transaction; "
        "with receiveOnly a sink with an outbox is safe"
    },
)
_TOO_WEAK = "it would let two senders of one message both find it unsent"
isolation_level = one_of(
    "ReadCommitted",
    "RepeatableRead",
    "Serializable",
    "Snapshot",
    refused=dict.fromkeys(("Chaos", "ReadUncommitted", "Unspecified"), _TOO_WEAK),
)


class NamesTables(Protocol):
    """The part of a dialect that decides which table an address means."""

    @property
    def default_schema(self) -> str: ...
    @property
    def quoted_addresses(self) -> bool: ...
    @property
    def ignores_case(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions(Options):
    """Where the database is, who we are there, and how its queues are named."""

    url: str = option(MEANING_OF_URL, secret=True)
    user: str | None = option("Login, kept out of `url`.", None)
    password: str | None = option(
        "Password, kept out of `url`; else `SQLQUEUE_PASSWORD`, if `url` is `SQLQUEUE_URL`.",
        None,
        secret=True,
    )
    access_token: str | None = option("A Microsoft Entra token.", None, secret=True)
    access_token_provider: str | None = option(
        "`module:function` that returns a token, or `azure-identity`; asked before each new connection.",
        None,
        parse=token_provider,
    )
    default_schema: str | None = option("Schema of queues that name none.", None, shown="`dbo` / `public`")
    legacy_addresses: bool = option("Ignore everything after the first `@` of an address.", False)
    lock_timeout: timedelta | None = option(
        "Longest wait for rows that others hold.",
        None,
        parse=duration,
        shown="`30s`; `60s` for rows of an unfinished batch, and for a stage",
    )
    command_timeout: timedelta = option("Longest run of one statement.", timedelta(minutes=5))
    allowed_destinations: str | None = option(
        "Only to these tables may an address out of a message lead, whatever code they have: patterns of "
        "addresses, separated by commas; `*` stands for any letters. With `+` before each: to these also.",
        None,
        parse=destinations,
        kind="addresses",
        shown="tables without code of others",
    )
    queue_schemas: Mapping[str, str] = option_per_name(
        "queue.<name>.schema", "Schema of one queue; wins over its address."
    )
    endpoint_schemas: Mapping[str, str] = option_per_name(
        "endpoint.<name>.schema",
        "Schema of one endpoint's queues; wins over the address. A name that ends in `*` is a prefix.",
    )
    endpoint_urls: Mapping[str, str] = option_per_name(
        "endpoint.<name>.url",
        "Another database for one destination's queues; a name that ends in `*` is a prefix.",
        secret=True,
    )
    #: What urls of PostgreSQL leave out, as it was where the options were read: on the driver. A worker may
    #: have another environment.
    environment: tuple[tuple[str, str], ...] = field(default_factory=of_libpq, repr=False)

    def naming(self, dialect: NamesTables) -> Naming:
        """The rules by which addresses become tables in a database of this dialect."""
        return Naming(
            default_schema=self.default_schema or dialect.default_schema,
            queue_schemas=self.queue_schemas,
            endpoint_schemas=self.endpoint_schemas,
            legacy_addresses=self.legacy_addresses,
            quoted_addresses=dialect.quoted_addresses,
            away={name: url != self.url for name, url in self.endpoint_urls.items()},
            ignores_case=dialect.ignores_case,
        )

    def check(self) -> None:
        for each in fields(self):
            if each.metadata.get("kind") == "address" or each.metadata.get("parse") is addresses:
                given = getattr(self, each.name) or ()
                for queue in (given,) if isinstance(given, str) else given:
                    Address.parse(queue, legacy=self.legacy_addresses, quoted=True)
        logins = {
            "accessTokenProvider": self.access_token_provider,
            "accessToken": self.access_token,
            "password": self.password,
        }
        given = [name for name, value in logins.items() if value]
        if len(given) > 1:
            raise ConfigurationError(
                f"Both {given[0]} and {given[-1]} are given, and only one of them can be the login; drop one."
            )


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ConnectionOptions):
    """The options of ``spark.readStream.format("sqlqueue")`` and ``spark.read``."""

    queue: str | None = option("Address of the queue table.", None, parse=address, shown="required")
    queues: tuple[str, ...] = option(
        "Instead of `queue`: several queues of one database, by address. Adds the column `Queue`.",
        (),
        parse=addresses,
        kind="JSON list",
    )
    queue_pattern: str | None = option(
        "Instead of `queue`: all queue tables of the default schema whose whole name this matches, "
        "later ones too. Adds the column `Queue`.",
        None,
        parse=pattern,
        kind="regular expression",
    )
    max_messages_per_trigger: int | None = option(
        "Most rows one micro-batch claims.", None, parse=positive, shown=_MOST_ROWS
    )
    first_messages_per_trigger: int = option(
        "Rows of a stream's first batch; a few hundred where each message takes long.",
        100_000,
        parse=positive,
    )
    adaptive_batch: bool = option(
        "Batches follow what they cost: their rows take eight times as long as the fixed cost of a batch; "
        "else each takes what it may.",
        True,
    )
    target_batch_duration: timedelta = option(
        "How long the rows of a batch should take at least.", timedelta(seconds=2)
    )
    max_batch_duration: timedelta = option(
        "How long a batch should last at most, from its claim until it is settled.", timedelta(seconds=20)
    )
    max_bytes_per_trigger: int = option("And most bytes of headers and bodies.", MOST_BATCH_BYTES, parse=size)
    max_concurrency: int = option(
        "Most partitions (tasks) of a micro-batch; fewer when few rows are pending.", 8, parse=positive
    )
    min_messages_per_partition: int = option(
        "A batch is not split into partitions of fewer rows. While this has its default, and "
        "`maxConcurrency` is at most its own, more than four partitions have at least 125,000 rows each.",
        20_000,
        parse=positive,
    )
    transaction_mode: str = option(_MODES, RECEIVE_ONLY, parse=transaction_mode)
    stream: str | None = option(_STREAM, None)
    poll_interval: timedelta = option("Longest pause between looks at an empty queue.", timedelta(seconds=1))
    neighbour_headroom: int | None = option(
        "How many of the oldest free rows are left to others while any are seen; `auto` follows their pace.",
        None,
        parse=headroom,
        kind="number or auto",
        shown="`auto`",
    )
    error_queue: str | None = option(
        "Queue where a message in transit goes that cannot be delivered.", None, kind="address"
    )
    outbox_endpoint: str | None = option(
        "The sink's `endpoint`, where its outbox is in the queue's database. After a loss of the claim, as "
        "each start after a stop is, this outbox says which rows are done; else Spark does. Rows that are "
        "passed on have no outcome here: those of the last batch come again, in a new batch, so any other "
        "sink must be idempotent by message id. Not for a stream with a state, like a count, which no "
        "outbox knows.",
        None,
    )
    claim_ahead: bool = option("While a backlog waits, claim the next batch during the present one.", True)
    done_file: str | None = option(
        "File on the driver: which batches Spark has logged, a JSON list of their end offsets. These are "
        "settled at once, not at the next trigger. The jobs write one.",
        None,
    )
    stop_file: str | None = option(
        "While this file exists on the driver, nothing is claimed: the gentle stop.", None
    )

    @property
    def several(self) -> bool:
        """Whether the rows of several queues are received, so that they have the column ``Queue``."""
        return self.queue is None

    @property
    def one_queue(self) -> str:
        """The address of the queue.

        :raises ConfigurationError: there are several.
        """
        if self.queue is None:
            raise ConfigurationError(
                f"Here one queue can be named, and not several ({self.title}); give its address as the "
                "option queue."
            )
        return self.queue

    @property
    def title(self) -> str:
        """What is received from, for logs and errors."""
        if self.queue is not None:
            return self.queue
        return ", ".join(self.queues) if self.queues else f"queuePattern {self.queue_pattern}"

    @property
    def most_rows(self) -> int:
        """The most rows of a batch, if nothing speaks for fewer."""
        return self.max_messages_per_trigger or MOST_BATCH_ROWS

    def check(self) -> None:
        super().check()
        given = {"queue": self.queue, "queues": self.queues, "queuePattern": self.queue_pattern}
        named = [name for name, value in given.items() if value]
        if not named:
            raise ConfigurationError("The option queue is required; set it to: Address of the queue table.")
        if len(named) > 1:
            raise ConfigurationError(
                f"Both {named[0]} and {named[1]} are given, and each says what is received; drop one."
            )
        _check_stream(self.transaction_mode, self.stream)


@dataclass(frozen=True, kw_only=True)
class SinkOptions(ConnectionOptions):
    """The options of ``SqlQueueSink`` and of ``df.write.format("sqlqueue")``."""

    queue: str | None = option(
        "Queue table of rows whose column `Destination` names none.", None, parse=address
    )
    endpoint: str | None = option(
        "Name of this pipeline alone: of its outbox, and of the sender in headers.", None, shown="`stream`"
    )
    outbox: str = option(
        "`optimistic`, `pessimistic` or `none`: how a message id is sent only once.",
        OPTIMISTIC,
        parse=one_of(OPTIMISTIC, PESSIMISTIC, NO_OUTBOX),
    )
    isolation_level: str = option(
        "`ReadCommitted`, `RepeatableRead`, `Serializable` or `Snapshot`, of the sending transactions.",
        "ReadCommitted",
        parse=isolation_level,
    )
    keep_deduplication_data_for: timedelta = option(
        "How long the outbox remembers a message id.", timedelta(days=7)
    )
    cleanup_every: timedelta = option("Pause between two cleanups of the outbox.", timedelta(minutes=1))
    disable_cleanup: bool = option(
        "Leave the cleanup to `sqlqueue outbox cleanup` or to the .NET endpoint.", False
    )
    error_queue: str | None = option(
        "Queue of messages that failed: unreadable headers, an unreachable destination, a `Failure`.",
        None,
        kind="address",
    )
    audit_queue: str | None = option(
        "Queue that gets a copy of each processed message, where rows are outcomes of messages.",
        None,
        kind="address",
    )
    retry_interval: timedelta = option(
        "How often a database that is down is tried, while messages for it wait.", timedelta(seconds=10)
    )
    give_up_after: timedelta = option(
        "How long a message waits for a database that is down, then it goes to `errorQueue`.",
        timedelta(days=1),
    )
    delayed_endpoint: str | None = option(
        "Messages with a time of delivery wait in `<delayedEndpoint>.Delayed`.", None, shown="`endpoint`"
    )
    publish: bool = option(
        "Publish each row as its type: of EnclosedMessageTypes, else `messageType`.", False
    )
    message_type: str | None = option("Type where headers name none, like `Sales.OrderPlaced, Sales`.", None)
    transaction_mode: str = option(_MODES, RECEIVE_ONLY, parse=transaction_mode)
    stream: str | None = option(_STREAM, None)
    store_and_forward: str | None = option(
        "Queue of this database that stores messages for another one; a store-and-forward job sends them on.",
        None,
        parse=address,
    )

    @property
    def uses_outbox(self) -> bool:
        """Whether the sink remembers message ids in an outbox; an atomic batch needs no outbox."""
        return self.outbox != NO_OUTBOX and self.transaction_mode != ATOMIC

    @property
    def sender(self) -> str | None:
        """The name under which messages are sent."""
        return self.endpoint or self.stream

    def check(self) -> None:
        super().check()
        _check_stream(self.transaction_mode, self.stream)
        if self.uses_outbox and self.give_up_after >= self.keep_deduplication_data_for:
            raise ConfigurationError(
                "The option giveUpAfter is not shorter than keepDeduplicationDataFor, so an outbox could "
                "forget a message that still waits for its database; make keepDeduplicationDataFor longer."
            )
        if self.publish and self.queue is not None:
            raise ConfigurationError(
                f"Both publish and queue ({self.queue!r}) are given, but an event goes to the queues that "
                "have subscribed to it; drop one of them."
            )
        if self.uses_outbox and self.sender is None:
            raise ConfigurationError(
                "The option endpoint is required with an outbox: it names the outbox table, and each "
                "pipeline needs one of its own, for ids that another pipeline has sent count as sent; set it "
                "to a name that no other endpoint has, or set outbox to none."
            )


def _check_stream(mode: str, stream: str | None) -> None:
    if mode == ATOMIC and stream is None:
        raise ConfigurationError(
            "The option stream is required with transactionMode sendsAtomicWithReceive; set it to a name of "
            "this pipeline, the same on source and sink."
        )
