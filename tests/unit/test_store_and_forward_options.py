"""What a store-and-forward job refuses before it starts Spark, each in one sentence;
and what each of its databases sees of its options.
"""

import pytest
from click.testing import CliRunner

from sqlqueue_spark.cli import main
from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.options import SinkOptions
from sqlqueue_spark.pipeline.declared.store_and_forward import StoreAndForward, StoreAndForwardOptions
from sqlqueue_spark.pipeline.declared.transform import load_function
from sqlqueue_spark.pipeline.running import program

SECRET = "hunter2"
SHOP, BILLING = (
    f"postgresql://me:{SECRET}@127.0.0.1:1/{name}" for name in ("shop", "billing")
)  # no server is there


@pytest.fixture
def job(monkeypatch):
    """The job with these arguments. Spark does not start."""
    monkeypatch.setattr(program, "session", lambda *_, **__: pytest.fail("Spark would start"))

    def run(*arguments, sink_url=BILLING):
        environment = {"SQLQUEUE_URL": SHOP, "SQLQUEUE_SINK_URL": sink_url}
        result = CliRunner(env=environment).invoke(main, ["store-and-forward", *arguments])
        assert SECRET not in result.output
        assert result.stdout == ""
        return result.exit_code, result.stderr

    return run


COMMON = ("--queue", "outgoing", "--checkpoint", "c", "--endpoint", "Shop.Forward", "--error-queue", "error")


@pytest.mark.parametrize(
    "arguments,sentence",
    [
        (
            COMMON[:6],
            (
                "There is no option errorQueue of the sink, where a message goes that cannot be delivered; "
                "name a queue: --error-queue error."
            ),
        ),
        (
            (*COMMON[:4], "--error-queue", "error"),
            (
                "There is no option endpoint of the sink, which names the outboxes, one in each database; "
                "give this pipeline a name that no other endpoint has: --endpoint Shop.Forward."
            ),
        ),
        (
            (*COMMON, "--set", "sink.queue=billing"),
            (
                "The sink has the option queue, and a message says itself where it goes, by its header "
                "$.store-and-forward.destination; name the queue for messages that have none as localQueue."
            ),
        ),
        *(
            (
                (*COMMON, "--set", f"{side}.transactionMode={mode}", "--set", f"{side}.stream=Orders", *more),
                (
                    f"transactionMode is '{mode}', and no transaction reaches two databases; leave it out: "
                    "with receiveOnly and an outbox each message arrives once."
                ),
            )
            for side, mode, more in (
                ("source", "sendsAtomicWithReceive", ()),
                ("sink", "sendsAtomicWithReceive", ()),
                ("source", "none", ()),
                ("sink", "none", ("--set", "sink.outbox=none")),
            )
        ),
        (
            (*COMMON, "--set", "sink.outbox=none"),
            (
                "outbox is 'none', and without one a message would arrive again whenever a batch is "
                "repeated; set it to optimistic."
            ),
        ),
        (
            (*COMMON, "--handler", "json:loads", "--local-queue", "orders"),
            (
                "There are a handler and a localQueue, and a message that does not go to another database "
                "goes to one of them; leave one out."
            ),
        ),
        (
            (*COMMON, "--local-queue", "outgoing@public"),
            (
                "The option localQueue names the queue of the source, outgoing@[public], so what "
                "goes there would be received again, for ever; name another queue."
            ),
        ),
        (
            (*COMMON[:-1], "outgoing@public"),
            (
                "The option errorQueue names the queue of the source, outgoing@[public], so what "
                "goes there would be received again, for ever; name another queue."
            ),
        ),
        (
            (*COMMON, "--handler", "json:no_such"),
            "The module json has no function no_such; correct the name.",
        ),
        (
            (*COMMON, "--handler", "math:pi"),
            "The function math:pi is no function, but float; give a function, or functions by type.",
        ),
    ],
)
def test_a_wrong_configuration_is_one_sentence(job, arguments, sentence):
    """And exit code 2."""
    assert job(*arguments) == (2, f"Error: {sentence}\n")


@pytest.mark.parametrize(
    "text, said",
    [
        ("import sys\nsys.exit(5)", "SystemExit: 5, in {file}, line 2"),
        ("raise RuntimeError('no shop')", "RuntimeError: no shop, in {file}, line 1"),
        ("\nimport no_such", "ModuleNotFoundError: No module named 'no_such', in {file}, line 2"),
        (
            "import uuid\nuuid.UUID('x')",
            "ValueError: badly formed hexadecimal UUID string, in {file}, line 2",
        ),
        ("\ndef place(", "SyntaxError: '(' was never closed, in {file}, line 2"),
    ],
)
def test_a_module_that_fails_is_to_be_mended(job, tmp_path, monkeypatch, text, said):
    """With its line, and not that of a library which it calls."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "failing_shop.py"
    file.write_text(text)
    assert job(*COMMON, "--handler", "failing_shop:place") == (
        2,
        (
            "Error: The module of the function failing_shop:place cannot be imported "
            f"({said.format(file=file)}); mend it.\n"
        ),
    )


def test_a_handler_may_be_a_dict_of_functions(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shop_by_type.py").write_text("by_type = {'Shop.PlaceOrder': print}")
    assert load_function("shop_by_type:by_type") == {"Shop.PlaceOrder": print}


def test_without_the_other_database_or_with_the_same_one_nothing_starts(job):
    assert job(*COMMON, sink_url=None) == (
        2,
        (
            "Error: There is no option url of the sink, the other database; give it as sink.url in the "
            "configuration, or as SQLQUEUE_SINK_URL.\n"
        ),
    )
    assert job(*COMMON, sink_url=SHOP) == (
        2,
        (
            "Error: The url of the sink is that of the queue's own database, and messages go to another one; "
            "give that one's as sink.url or SQLQUEUE_SINK_URL, or take jobs/forward.py, "
            "which sends within a database.\n"
        ),
    )


def test_what_is_understood_fails_at_the_database_that_does_not_answer(job):
    """Which is another exit code."""
    code, said = job(*COMMON, "--local-queue", "orders")
    assert (code, said.startswith("Error: No database answers at 127.0.0.1:1/shop (")) == (1, True)


def test_each_database_sees_its_own_options():
    """What the handler stores for another database, waits or fails is at home;
    the databases of further destinations are known to both.
    """
    source = {"url": SHOP, "user": "me", "queue": "outgoing", "defaultSchema": "sales", "pollInterval": "1s"}
    sink = {
        "url": BILLING,
        "endpoint": "F",
        "errorQueue": "error",
        "auditQueue": "audit",
        "delayedEndpoint": "Shop",
        "storeAndForward": "outgoing",
        "endpoint.Shipping.url": "postgresql://third",
        "outbox": "pessimistic",
    }
    found = StoreAndForward(
        source, sink, StoreAndForwardOptions.parse({"checkpoint": "c", "localQueue": "orders"})
    )
    both = {"endpoint": "F", "outbox": "pessimistic"}
    home = {
        **both,
        "url": SHOP,
        "user": "me",
        "defaultSchema": "sales",
        "queue": "orders",
        "errorQueue": "error",
        "auditQueue": "audit",
        "delayedEndpoint": "Shop",
        "storeAndForward": "outgoing",
    }
    other = {**both, "url": BILLING, "endpoint.Shipping.url": "postgresql://third"}
    assert (found.places.home, found.places.away) == (SinkOptions.parse(home), SinkOptions.parse(other))


def test_a_password_of_the_sink_is_no_other_database():
    source = {"url": "postgresql://me@127.0.0.1:1/shop", "queue": "outgoing"}
    sink = {"url": source["url"], "password": SECRET, "endpoint": "F", "errorQueue": "error"}
    options = StoreAndForwardOptions.parse({"checkpoint": "c"})
    with pytest.raises(ConfigurationError, match="is that of the queue's own database"):
        StoreAndForward(source, sink, options)
