"""Which failed messages are tried again later, and after how long: by their own headers,
so the same in each try of a batch.
"""

import json
from datetime import timedelta

import pytest
from pyspark.sql import functions as F  # noqa: N812 -- what every Spark user calls it

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.handling import recoverability

SCHEMA = (
    "Id string, Headers string, Body binary, RowVersion bigint, "
    "Failure struct<ExceptionType:string,Unrecoverable:boolean>"
)
FAILS, HOPELESS = ("shop.Error", False), ("shop.Error", True)


def headers(retries):
    return json.dumps(
        {"NServiceBus.MessageId": "m", **({} if retries is None else {"NServiceBus.Retries": retries})}
    )


#: Headers and failure of a message, and after how long it is tried again.
CASES = [
    (headers(None), FAILS, 10),
    (headers("1"), FAILS, 20),
    (headers("2"), FAILS, 30),
    (headers("3"), FAILS, None),
    (headers("4"), FAILS, None),
    (headers("many"), FAILS, 10),
    (headers("-7"), FAILS, 10),
    (headers("99999999999"), FAILS, 10),
    (headers("3\n"), FAILS, 10),
    (headers("\N{ARABIC-INDIC DIGIT THREE}"), FAILS, 10),
    (None, FAILS, 10),
    # How often these were tried is not known: Spark reads no name of more than 50,000 characters, and we do.
    ("no JSON", FAILS, None),
    (json.dumps({"x" * 60_000: "", "NServiceBus.Retries": "1"}), FAILS, None),
    (headers(None), HOPELESS, None),
    (headers(None), ("shop.Error", None), 10),
    (headers(None), None, "did not fail"),
]


@pytest.fixture
def messages(spark):
    rows = [(str(n), text, b"", n, failure) for n, (text, failure, _) in enumerate(CASES)]
    return spark.createDataFrame(rows, SCHEMA)


def test_each_failure_tells_when_it_is_tried_again(messages):
    recovered = recoverability(messages, queue="orders", errorQueue="my error", delayedRetries=3)
    told = recovered.orderBy("RowVersion").select("Queue", "Failure").collect()
    assert {row.Queue for row in told} == {"orders"}
    after = ["did not fail" if row.Failure is None else row.Failure.RetryAfter for row in told]
    wanted = [timedelta(seconds=each) if isinstance(each, int) else each for _, _, each in CASES]
    assert after == wanted
    assert {row.Failure.ErrorQueue for row in told if row.Failure is not None} == {"my error"}


def test_the_increase_may_be_less_than_a_second(messages):
    recovered = recoverability(messages, queue="orders", delayedRetriesIncrease="250ms")
    first, *_ = recovered.orderBy("RowVersion").select("Failure.*").collect()
    assert first.RetryAfter == timedelta(milliseconds=250)


def test_no_retries_are_none(messages):
    recovered = recoverability(messages, queue="orders", delayedRetries=0)
    assert recovered.where("Failure.RetryAfter IS NOT NULL").count() == 0


@pytest.mark.parametrize(
    "given, said",
    [
        ({"delayedRetries": -1}, "delayedRetries is -1"),
        ({"delayedRetries": "1s"}, "delayedRetries is '1s'"),
        (
            {"delayedRetriesIncrease": timedelta(days=13_000)},
            "the last of 3 retries waits for more than 100 years",
        ),
        ({"delayedRetriesIncrease": "soon"}, "delayedRetriesIncrease is 'soon'"),
        (
            {"delayedRetriesIncrease": timedelta(seconds=-1)},
            r"delayedRetriesIncrease is datetime.timedelta\(.*\); write a duration above 0 like",
        ),
        ({"queue": None}, "needs to know the queue"),
    ],
)
def test_what_is_wrong_is_said(messages, given, said):
    with pytest.raises(ConfigurationError, match=said):
        recoverability(messages, **{"queue": "orders", **given})


def test_a_frame_without_a_failure_is_refused(messages):
    for frame in (messages.drop("Failure"), messages.withColumn("Failure", F.lit("text"))):
        with pytest.raises(ConfigurationError, match="needs the column Failure"):
            recoverability(frame, queue="orders")
