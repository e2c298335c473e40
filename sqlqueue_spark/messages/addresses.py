"""A queue address: ``table@[schema]@[catalog]``, parsed, canonical, and resolved to one table.

Format: the addresses of the NServiceBus SQL transports. The table part ends at the first ``@`` and is
taken literally; schema and catalog may be bare or bracketed, and inside brackets ``]`` is doubled.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, Self, TypeVar

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.plain_text import holds_password

T = TypeVar("T")
#: Where an address leads: to the queue itself, to another table here, to the database of a url, or nowhere.
Way = Literal["own", "home", "away", "nowhere"]

_QUOTED = re.compile(r'"(?P<first>(?:[^"]|"")+)"(?:\."(?P<second>(?:[^"]|"")+)")?')
_PART = r"(\[(?:[^\]]|\]\])*\]|[^@\[\]]*)"
#: The most characters of an address, and those that are shown of a longer one. Three names of 128 characters,
#: each of them doubled, have fewer.
LONGEST_ADDRESS, _SHOWN = 1_000, 80
_BEHIND_TABLE = re.compile(f"{_PART}(?:@{_PART})?")
#: What no database takes in a name: NUL, and halves of astral characters, which are no Unicode.
_UNNAMEABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table, by the names the database knows it by; ``catalog`` None is the connection's database."""

    table: str
    schema: str
    catalog: str | None = None

    def __str__(self) -> str:
        return str(Address(table=self.table, schema=self.schema, catalog=self.catalog))

    def to_text(self) -> str:
        """A text that :meth:`from_text` reads as this table: the canonical address if possible, else JSON."""
        address = str(self)
        if not address.startswith("{") and _read_as(address, self):
            return address
        return json.dumps({name: each for name, each in asdict(self).items() if each is not None})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of :meth:`to_text`, and of the canonical address with schema and catalog.

        :raises ConfigurationError: the text is of some other kind.
        """
        if text.startswith("{"):
            with contextlib.suppress(ValueError, TypeError, RecursionError):  # an address may begin so too
                return cls(**json.loads(text))
        try:
            address = Address.parse(text)
        except ConfigurationError:
            name, *behind = text.rsplit("@[", 2)  # the table's name may hold an @
            if len(behind) < 2:
                raise
            schema, catalog = (_unbracketed("[" + each) for each in behind)
            return cls(table=name, schema=schema, catalog=catalog)
        return cls(table=address.table, schema=address.schema or "", catalog=address.catalog)

    def to_address(self, *, quoted: bool) -> str:
        """The address that people write for this table: canonical, or quoted if that is ambiguous.

        :param quoted: whether the engine understands quoted addresses (:attr:`Naming.quoted_addresses`).
        """
        return str(self) if not quoted or _read_as(str(self), self) else self.full_address(quoted=True)

    def full_address(self, *, quoted: bool) -> str:
        """The full address, as the transport writes it.

        It is ``"schema"."table"`` on PostgreSQL, else ``table@[schema]@[catalog]``. A .NET endpoint misreads
        a shorter form: on PostgreSQL ``Sales.Web`` is the table ``Web`` of the schema ``Sales``.

        :param quoted: whether the engine understands quoted addresses (:attr:`Naming.quoted_addresses`).
        """
        if not quoted:
            return str(self)
        return ".".join('"' + name.replace('"', '""') + '"' for name in (self.schema, self.table))


@dataclass(frozen=True, kw_only=True)
class Address:
    """A queue's name as people and headers write it; parts that were not written are None."""

    table: str
    schema: str | None = None
    catalog: str | None = None

    def __str__(self) -> str:
        """The canonical form: schema and catalog always bracketed."""
        if self.catalog is not None:
            return f"{self.table}@{_bracketed(self.schema or '')}@{_bracketed(self.catalog)}"
        return self.table if self.schema is None else f"{self.table}@{_bracketed(self.schema)}"

    @classmethod
    def parse(cls, text: str, *, legacy: bool = False, quoted: bool = False) -> "Address":
        """Read an address.

        :param legacy: ignore everything after the first ``@``, where the oldest senders wrote machine names.
        :param quoted: understand ``"schema"."table"`` too, the form of the PostgreSQL transport.
        :raises ConfigurationError: the text is no address.
        """
        if holds_password(text):
            raise ConfigurationError(
                "A url with a password stands where a queue's address is expected; give it as the option "
                "url, and write table@[schema]@[catalog] for the queue."
            )
        if len(text) > LONGEST_ADDRESS:
            raise ConfigurationError(
                f"The queue address that begins with {text[:_SHOWN]!r} has {len(text):,} characters, which "
                "no table's has; write table@[schema]@[catalog]."
            )
        if _UNNAMEABLE.search(text):
            raise ConfigurationError(
                f"The queue address {text!r} holds a character that no name can have; "
                "write table@[schema]@[catalog]."
            )
        if quoted and (match := _QUOTED.fullmatch(text)):
            names = [part.replace('""', '"') for part in match.groups() if part is not None]
            return cls(table=names[-1], schema=names[0] if len(names) == 2 else None)
        table, at, rest = text.partition("@")
        if not table.strip():
            raise ConfigurationError(
                f"The queue address {text!r} has no table name; write table@[schema]@[catalog]."
            )
        if not at or legacy:
            return cls(table=table)
        if (parts := _BEHIND_TABLE.fullmatch(rest)) is None:
            raise ConfigurationError(
                f"The queue address {text!r} cannot be read after the first '@'; write "
                "table@[schema]@[catalog] and double every ']' inside the brackets."
            )
        schema, catalog = map(_unbracketed, parts.groups(""))
        return cls(table=table, schema=schema or None, catalog=catalog or None)


@dataclass(frozen=True, kw_only=True)
class Naming:
    """How addresses become tables: the schema settings and the compatibility switches.

    A queue's schema wins over its endpoint's, that one over the address's own, and that one over the default.
    """

    default_schema: str
    queue_schemas: Mapping[str, str] = field(default_factory=dict)
    endpoint_schemas: Mapping[str, str] = field(default_factory=dict)
    legacy_addresses: bool = False
    quoted_addresses: bool = False
    #: The endpoints that have a url: whether it leads to another database.
    away: Mapping[str, bool] = field(default_factory=dict)
    #: Whether names that differ in the case of letters alone are one name.
    ignores_case: bool = False

    def table(self, queue: str) -> Table:
        """The table that an address names under these settings.

        :raises ConfigurationError: the text is no address.
        """
        address = Address.parse(queue, legacy=self.legacy_addresses, quoted=self.quoted_addresses)
        name = address.table.lower()
        own = self.queue_schemas.get(name) or of_endpoint(self.endpoint_schemas, name)
        schema = own or address.schema or self.default_schema
        return Table(table=address.table, schema=schema, catalog=address.catalog)

    def way(self, address: str, queue: str | Table, database: str | None = None) -> Way:
        """Where an address leads from a queue; first of all to itself, whatever url its endpoint has.

        :param database: that of the queue. Where it is None, any may be.
        """
        if address == queue:
            return "own"
        try:
            table, own = self.table(address), queue if isinstance(queue, Table) else self.table(queue)
        except ConfigurationError:
            return "nowhere"
        here = own.catalog or database or table.catalog
        table, own = (replace(each, catalog=each.catalog or here) for each in (table, own))
        if table == own or (self.ignores_case and str(table).casefold() == str(own).casefold()):
            return "own"
        return "away" if of_endpoint(self.away, table.table) else "home"

    def written(self, queue: str) -> tuple[str, str]:
        """An address as the transport writes it, and whose queue it is; as given where it cannot be read."""
        try:
            table = self.table(queue)
        except ConfigurationError:
            return queue, queue
        # A quoted address names no database, so one with a catalog stays canonical.
        return table.full_address(quoted=self.quoted_addresses and table.catalog is None), table.table

    def tables(
        self, queues: Iterable[str], instances: Sequence[str] = (), companions: Iterable[str] = ()
    ) -> list[Table]:
        """The tables of queues, of their instances' callback queues, and of their companions, each once."""
        primary = [self.table(queue) for queue in queues]
        callback = [replace(table, table=f"{table.table}.{name}") for table in primary for name in instances]
        return list(dict.fromkeys([*primary, *callback, *map(self.table, companions)]))


def of_endpoint(settings: Mapping[str, T], queue: str) -> T | None:
    """The setting for the endpoint of a queue, by the name of the queue's table; None where there is none.

    Names are case-insensitive. A name that ends in ``*`` is a prefix, also for the callback queues of an
    endpoint. The longest match wins.
    """
    name = queue.lower()
    prefixes = {each: each.removesuffix("*") for each in settings}
    fitting = [
        each
        for each, prefix in prefixes.items()
        if each == name or (prefix != each and name.startswith(prefix))
    ]
    if not fitting:
        return None
    return settings[max(fitting, key=lambda each: (len(prefixes[each]), each == name))]


def _read_as(address: str, table: Table) -> bool:
    try:
        read = Address.parse(address)
    except ConfigurationError:
        return False
    return (read.table, read.schema, read.catalog) == (table.table, table.schema, table.catalog)


def _bracketed(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def _unbracketed(name: str) -> str:
    return name[1:-1].replace("]]", "]") if name.startswith("[") else name
