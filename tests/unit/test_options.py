"""Options: read once, explained when wrong, secret where they must be."""

from datetime import timedelta

import pytest

from sqlqueue_spark.engines.engine_of_url import SQLSERVER
from sqlqueue_spark.engines.open_connection import Target
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import ConnectionOptions, SinkOptions, SourceOptions
from sqlqueue_spark.options.fields import duration, duration_of, size
from sqlqueue_spark.options.options import MOST_LOCKED_BATCH_ROWS

NEEDED = {"url": "postgresql://me:hunter2@host/shop", "queue": "orders"}


def parse(**more):
    return SourceOptions.parse({**NEEDED, **more})


def test_the_defaults_are_those_of_the_contract():
    options = parse()
    assert (
        options.most_rows,
        options.adaptive_batch,
        options.target_batch_duration,
        MOST_LOCKED_BATCH_ROWS,
        options.max_bytes_per_trigger,
        options.max_concurrency,
        options.min_messages_per_partition,
        options.transaction_mode,
        options.poll_interval,
        Target.of(options).lock_timeout,
        Target.of(options).relock_timeout,
        options.command_timeout,
        options.legacy_addresses,
    ) == (
        1_000_000,
        True,
        timedelta(seconds=2),
        20_000,
        1 << 30,
        8,
        20_000,
        "receiveOnly",
        timedelta(seconds=1),
        timedelta(seconds=30),
        timedelta(seconds=60),
        timedelta(minutes=5),
        False,
    )
    assert (options.stream, options.stop_file, options.default_schema, options.user, options.password) == (
        None,
    ) * 5


def test_names_are_read_in_any_case():
    """As Spark hands them over."""
    given = {name.lower(): value for name, value in {**NEEDED, "maxMessagesPerTrigger": "7"}.items()}
    assert SourceOptions.parse(given) == parse(maxMessagesPerTrigger="7")
    assert SourceOptions.parse(
        {"URL": NEEDED["url"], "QUEUE": "orders", "MAXMESSAGESPERTRIGGER": "7"}
    ) == parse(maxMessagesPerTrigger="7")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("500ms", timedelta(milliseconds=500)),
        ("1s", timedelta(seconds=1)),
        ("30s", timedelta(seconds=30)),
        ("10m", timedelta(minutes=10)),
        ("2h", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        (" 5s ", timedelta(seconds=5)),
    ],
)
def test_durations_have_units(text, expected):
    assert duration(text) == expected
    assert parse(pollInterval=text).poll_interval == expected


@pytest.mark.parametrize("given", ["0s", "-1s", "soon", timedelta(0), timedelta(seconds=-1)])
def test_an_argument_that_is_no_duration_is_refused(given):
    with pytest.raises(ConfigurationError) as caught:
        duration_of("delayedRetriesIncrease", given)
    assert str(caught.value) == (
        f"delayedRetriesIncrease is {given!r}; write a duration above 0 like 500ms, 30s, 10m or 7d, of "
        "ten years at most."
    )


@pytest.mark.parametrize(
    "text", ["", "5", "s", "0s", "-1s", "1.5s", "5 s", "5S", "1w", "5m30s", "9" * 30 + "d"]
)
def test_what_is_no_duration_is_explained(text):
    with pytest.raises(ConfigurationError) as caught:
        parse(lockTimeout=text)
    assert str(caught.value).startswith(
        "The option lockTimeout must be a duration above 0 like 500ms, 30s, 10m or 7d"
    )
    assert str(caught.value).endswith(f", not {text!r}.")


@pytest.mark.parametrize(
    "text, expected",
    [("1", 1), ("500k", 512_000), ("64m", 67_108_864), ("1g", 1_073_741_824), ("2G", 2 << 30)],
)
def test_sizes_have_units(text, expected):
    assert size(text) == expected
    assert parse(maxBytesPerTrigger=text).max_bytes_per_trigger == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5g", "64mb", "g", "1 g"])
def test_what_is_no_size_is_explained(text):
    with pytest.raises(ConfigurationError) as caught:
        parse(maxBytesPerTrigger=text)
    assert str(caught.value) == (
        f"The option maxBytesPerTrigger must be a size in bytes like 500k, 64m or 1g, not {text!r}."
    )


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "", "1e3", str(1 << 63)])
def test_what_is_no_number_is_explained(text):
    with pytest.raises(ConfigurationError) as caught:
        parse(maxMessagesPerTrigger=text)
    assert str(caught.value) == (
        f"The option maxMessagesPerTrigger must be a whole number above 0, not {text!r}."
    )


@pytest.mark.parametrize(
    "name, nearest",
    [
        ("maxMessagePerTrigger", "maxMessagesPerTrigger"),
        ("maxmessages", "maxMessagesPerTrigger"),
        ("QUEUEE", "queue"),
        ("queuesPattern", "queuePattern"),
        ("pasword", "password"),
        ("poll_interval", "pollInterval"),
        ("lockTimeOuts", "lockTimeout"),
    ],
)
def test_an_unknown_option_suggests_the_nearest(name, nearest):
    with pytest.raises(ConfigurationError) as caught:
        parse(**{name: "x"})
    assert str(caught.value) == f"There is no option {name!r}; did you mean {nearest}?"


@pytest.mark.parametrize(
    "name, told",
    [
        ("subscribe", "here that is the option queue."),
        ("dbtable", "here that is the option queue."),
        ("kafka.bootstrap.servers", "here that is the option url."),
        ("maxOffsetsPerTrigger", "here that is the option maxMessagesPerTrigger."),
        ("maxFilesPerTrigger", "here that is the option maxMessagesPerTrigger."),
        ("minPartitions", "here that is the option maxConcurrency."),
        (
            "startingOffsets",
            "a stream takes the oldest row first, and rows that were received are deleted, so leave it out.",
        ),
        ("endingOffsets", "to end with what is there now, use trigger(availableNow=True)."),
        ("failOnDataLoss", "rows that others took are gone for good, so leave it out."),
        ("subscribePattern", "a stream reads one queue, which the option queue names."),
    ],
)
def test_what_another_connector_calls_an_option_gets_a_hint(name, told):
    with pytest.raises(ConfigurationError) as caught:
        parse(**{name: "x"})
    assert str(caught.value) == f"There is no option {name!r}; {told}"


def test_a_hint_names_no_option_that_is_not_there():
    with pytest.raises(
        ConfigurationError, match=r"^There is no option 'maxOffsetsPerTrigger'; the options are url, "
    ):
        SinkOptions.parse({"url": "postgresql://h/d", "maxOffsetsPerTrigger": "1"})


def test_an_unknown_option_near_to_none_lists_all():
    with pytest.raises(
        ConfigurationError, match=r"^There is no option 'zzz'; the options are url, user, password, "
    ):
        parse(zzz="1")


@pytest.mark.parametrize(
    "missing, message",
    [
        (
            "url",
            (
                "The option url is required; set it to: `postgresql://…`; for SQL Server `mssql://…` or an "
                "ODBC connection string."
            ),
        ),
        ("queue", "The option queue is required; set it to: Address of the queue table."),
    ],
)
def test_a_missing_option_is_named_with_its_meaning(missing, message):
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse({name: value for name, value in NEEDED.items() if name != missing})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "mode, remedy",
    [
        ("transactionScope", "a sink with an outbox is safe"),
        ("TRANSACTIONSCOPE", "a sink with an outbox is safe"),
        ("fast", "must be receiveOnly or sendsAtomicWithReceive or none, not 'fast'"),
    ],
)
def test_other_transaction_modes_are_refused(mode, remedy):
    """With the remedy; transactionScope is one of them."""
    with pytest.raises(ConfigurationError) as caught:
        parse(transactionMode=mode)
    assert remedy in str(caught.value)


def test_schemas_are_options_with_a_name_in_them():
    """The name of a queue or of an endpoint."""
    options = parse(
        **{"queue.My.Orders.schema": "one", "ENDPOINT.Sales.Schema": "two", "queue.x.y.schema": "three"}
    )
    assert options.queue_schemas == {"my.orders": "one", "x.y": "three"}
    assert options.endpoint_schemas == {"sales": "two"}
    naming = options.naming(SQLSERVER)
    assert [str(naming.table(each)) for each in ("My.Orders", "Sales@[own]", "other", "other@[own]")] == [
        "My.Orders@[one]",
        "Sales@[two]",
        "other@[dbo]",
        "other@[own]",
    ]
    assert str(parse(defaultSchema="own").naming(SQLSERVER).table("t")) == "t@[own]"


SECRETS = {"url": "postgresql://me:hunter2@host/shop", "password": "hunter2", "accessToken": "hunter2"}


@pytest.mark.parametrize("login,name", [("password", "password"), ("accessToken", "access_token")])
def test_secrets_are_in_no_repr(login, name):
    options = SourceOptions.parse({**NEEDED, "url": SECRETS["url"], login: SECRETS[login]})
    assert "hunter2" not in f"{options} {options!r} {Target.of(options)} {Target.of(options)!r}"
    assert getattr(options, name) == "hunter2"


def test_an_empty_url_is_a_url_that_is_missing():
    """As an empty widget or variable gives it."""
    with pytest.raises(ConfigurationError) as caught:
        parse(url="")
    assert str(caught.value).startswith("The option url is required; set it to: `postgresql://…`; for SQL ")


@pytest.mark.parametrize("name", sorted(SECRETS.keys() - {"url"}))
def test_a_secret_that_is_refused_is_not_repeated(name):
    with pytest.raises(ConfigurationError) as caught:
        parse(**{name: ""})
    assert str(caught.value) == f"The option {name} must be some text, not the given value."


def test_an_unknown_option_s_value_is_not_shown():
    with pytest.raises(ConfigurationError) as caught:
        parse(passwrd="hunter2")
    assert "hunter2" not in str(caught.value)


def test_every_option_is_described_in_one_line():
    described = list(SourceOptions.described())
    assert [each.name for each in described][:4] == ["url", "user", "password", "accessToken"]
    assert {each.name for each in described if each.secret} == {
        *("url", "password", "accessToken", "endpoint.<name>.url"),
    }
    assert {each.name: each.default for each in described}["url"] == "required"
    assert all(each.meaning.endswith(".") and "\n" not in each.meaning for each in described)
    assert {each.name for each in ConnectionOptions.described()} < {each.name for each in described}


def sink(**more):
    return SinkOptions.parse({"url": NEEDED["url"], "endpoint": "Sales.Spark", **more})


def test_the_sink_has_the_defaults_of_the_contract():
    options = sink()
    assert (
        options.queue,
        options.outbox,
        options.isolation_level,
        options.keep_deduplication_data_for,
        options.cleanup_every,
        options.disable_cleanup,
        options.transaction_mode,
        options.stream,
        options.endpoint_urls,
    ) == (
        None,
        "optimistic",
        "ReadCommitted",
        timedelta(days=7),
        timedelta(minutes=1),
        False,
        "receiveOnly",
        None,
        {},
    )


@pytest.mark.parametrize("level", ["Chaos", "readuncommitted", "Unspecified"])
def test_unsafe_isolation_levels_are_refused(level):
    """They would lose messages."""
    with pytest.raises(ConfigurationError) as caught:
        sink(isolationLevel=level)
    assert str(caught.value) == (
        "The option isolationLevel must be ReadCommitted or RepeatableRead or Serializable or "
        f"Snapshot (it would let two senders of one message both find it unsent), not {level!r}."
    )


def test_a_sink_with_an_outbox_needs_its_own_name():
    """Two pipelines with one outbox: what the first has sent on its way, the second would drop."""
    with pytest.raises(ConfigurationError, match="The option endpoint is required with an outbox"):
        SinkOptions.parse({"url": NEEDED["url"]})
    assert SinkOptions.parse({"url": NEEDED["url"], "stream": "orders"}).sender == "orders"
    assert not SinkOptions.parse({"url": NEEDED["url"], "outbox": "none"}).uses_outbox


@pytest.mark.parametrize("options", [SinkOptions, SourceOptions])
def test_an_atomic_pipeline_needs_a_name(options):
    with pytest.raises(ConfigurationError, match="The option stream is required with transactionMode"):
        options.parse({**NEEDED, "transactionMode": "SendsAtomicWithReceive"})
    assert options.parse({**NEEDED, "transactionMode": "SendsAtomicWithReceive", "stream": "s"}).stream == "s"


def test_the_longest_name_of_an_endpoint_wins():
    """And its own name before a prefix."""
    named = {"sales": "own", "sales*": "callbacks", "sales.x*": "x", "s*": "s"}
    options = sink(**{f"endpoint.{name}.schema": schema for name, schema in named.items()})
    naming = options.naming(SQLSERVER)
    queues = ("Sales", "sales.a", "Sales.X1", "stock", "orders")
    assert [naming.table(each).schema for each in queues] == ["own", "callbacks", "x", "s", "dbo"]


def test_the_urls_of_other_databases_are_secret():
    options = sink(**{"endpoint.Billing*.url": "postgresql://u:hunter3@h/b"})
    assert options.endpoint_urls == {"billing*": "postgresql://u:hunter3@h/b"}
    assert "hunter" not in repr(options)


URL = {"url": NEEDED["url"]}


def test_several_queues_are_a_json_list():
    options = SourceOptions.parse({**URL, "queues": '["orders", "billing@[sales]"]'})
    assert (options.queue, options.queues, options.several) == (None, ("orders", "billing@[sales]"), True)
    assert options.title == "orders, billing@[sales]"


def test_a_pattern_stands_for_queues():
    options = SourceOptions.parse({**URL, "queuePattern": r"Sales\..+"})
    assert (options.queue, options.queue_pattern, options.several) == (None, r"Sales\..+", True)
    assert options.title == r"queuePattern Sales\..+"


@pytest.mark.parametrize("text", ["orders", "", "[]", "{}", "[1]", '"orders"', '["orders", null]', "[[]]"])
def test_what_is_no_list_of_queues_is_explained(text):
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse({**URL, "queues": text})
    assert str(caught.value) == (
        f'The option queues must be a JSON list of addresses like ["orders", "billing"], not {text!r}.'
    )


def test_a_queue_that_is_listed_twice_is_refused():
    with pytest.raises(ConfigurationError, match="must be a list that names each queue once"):
        SourceOptions.parse({**URL, "queues": '["orders", "orders"]'})


def test_an_empty_name_is_no_queue():
    with pytest.raises(ConfigurationError, match="The option queues must be some text"):
        SourceOptions.parse({**URL, "queues": '["orders", ""]'})


@pytest.mark.parametrize("text", ["", "(", "*", "[a", "a" * 1_001])
def test_what_is_no_pattern_is_explained(text):
    with pytest.raises(
        ConfigurationError, match=r"The option queuePattern must be (a regular expression|some text)"
    ):
        SourceOptions.parse({**URL, "queuePattern": text})


@pytest.mark.parametrize(
    "given, both",
    [
        ({"queue": "a", "queues": '["b"]'}, "queue and queues"),
        ({"queue": "a", "queuePattern": "b"}, "queue and queuePattern"),
        ({"queues": '["a"]', "queuePattern": "b"}, "queues and queuePattern"),
    ],
)
def test_only_one_option_says_what_is_received(given, both):
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse({**URL, **given})
    assert str(caught.value) == f"Both {both} are given, and each says what is received; drop one."


def test_one_of_the_options_must_say_what_is_received():
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse(URL)
    assert str(caught.value) == "The option queue is required; set it to: Address of the queue table."


def test_where_one_queue_is_wanted_several_are_refused():
    with pytest.raises(
        ConfigurationError, match=r"one queue can be named, and not several \(a, b\); give its address"
    ):
        _ = SourceOptions.parse({**URL, "queues": '["a", "b"]'}).one_queue


@pytest.mark.parametrize("options, name", [(SourceOptions, "errorQueue"), (SinkOptions, "auditQueue")])
def test_an_address_that_cannot_be_read_is_refused_with_the_options(options, name):
    given = {**NEEDED, **({"outbox": "none"} if options is SinkOptions else {})}
    for each in (name, "queue"):
        with pytest.raises(ConfigurationError, match=r"^The queue address 'a@b@c@d' cannot be read after"):
            options.parse({**given, each: "a@b@c@d"})
        options.parse({**given, each: "a@b@c@d", "legacyAddresses": "true"})


def test_so_is_one_in_a_list_of_queues():
    with pytest.raises(ConfigurationError, match=r"^The queue address 'a@b@c@d' cannot be read after"):
        SourceOptions.parse({**URL, "queues": '["orders", "a@b@c@d"]'})
