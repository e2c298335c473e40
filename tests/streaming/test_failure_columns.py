"""What headers of error and audit queues tell, as columns: what real endpoints wrote,
and headers that no program should write.
"""

import json
from datetime import UTC, datetime

import pytest
from chispa import assert_df_equality

from sqlqueue_spark import functions
from tests.support import dotnet

COLUMNS = (
    "Id string, FailedQueue string, ExceptionType string, ExceptionMessage string, "
    "ProcessingEndpoint string, ProcessingMachine string, OriginatingEndpoint string, TimeOfFailure "
    "timestamp, ProcessingStarted timestamp, ProcessingEnded timestamp, IsFailure boolean"
)
NAMES = [each.split()[0] for each in COLUMNS.split(", ")]
RECORDER, HANDLER = '"public"."Interop.Recorder"', '"public"."Interop.Handler"'
INVALID = "System.InvalidOperationException"
NOTHING = (None,) * 9
#: Headers that no program should write, and what is known of each:
#: all headers of failures that are not named are NULL.
HOSTILE: dict[str, dict[str, object]] = {
    "not json": {"IsFailure": True},
    "[1]": {"IsFailure": True},
    '{"NServiceBus.FailedQ": {"in": "it"}': {"IsFailure": True},
    "{" * 20_000: {"IsFailure": True},
    "\x00": {"IsFailure": True},
    "": {},
    "null": {},
    "{}": {},
    '{"NServiceBus.FailedQ":""}': {},
    '{"NServiceBus.FailedQ":null}': {},
    '{"NServiceBus.FailedQ":7}': {"FailedQueue": "7", "IsFailure": True},
    '{"nservicebus.failedq":"in small letters"}': {},
    '{"ServiceControl.Retry.Successful":"x"}': {},
    '{"NServiceBus.FailedQ":"q","ServiceControl.Retry.Successful":"x"}': {
        "FailedQueue": "q",
        "IsFailure": True,
    },
    '{"NServiceBus.FailedQ":"a\\u0000b"}': {"FailedQueue": "a\x00b", "IsFailure": True},
    '{"NServiceBus.ExceptionInfo.Message":"half \\ud800 of it"}': {"ExceptionMessage": "half ? of it"},
    '\ufeff{"NServiceBus.ProcessingMachine":"vm"}': {"ProcessingMachine": "vm"},
    **{
        json.dumps({"NServiceBus.TimeOfFailure": text, "NServiceBus.ProcessingStarted": text}): {}
        for text in (
            "yesterday",
            "2026-13-41 25:61:61:000000 Z",
            "2026-11-22T16:44:32.420202Z",
            "2026-11-22 16:44:32",
            "２０２６-11-22 16:44:32:420202 Z",
            "\x00" * 28,
            "-" * 100_000,
        )
    },
}


def moment(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def rows_of(spark, files):
    rows = [(str(row.id), row.headers) for file, count in files.items() for row in dotnet.rows(file)[:count]]
    return spark.createDataFrame(rows, "Id string, Headers string")


def told(frame):
    return functions.with_failure_columns(frame)


def test_what_real_endpoints_wrote_is_told(spark):
    """Failures, a row that could not be read, an acknowledgement,
    a message that failed again, a processed one.
    """
    files = {"error": 3, "servicecontrol/acknowledgement": 1, "servicecontrol/failedagain": 1, "audit": 1}
    frame = rows_of(spark, files)
    expected = [
        ("00000000-0000-0000-0000-00000000dead", *NOTHING, True),
        (
            "0f36abb0-bdce-48b8-bb8d-6952c1e44dc0",
            RECORDER,
            INVALID,
            "cannot do order f2",
            "Interop.Recorder",
            "vm",
            "Interop.Recorder",
            moment("2026-11-22 16:44:32.420202"),
            None,
            None,
            True,
        ),
        (
            "5db4b79f-b0c3-42d9-8806-263c71278dec",
            RECORDER,
            INVALID,
            "cannot do order f1",
            "Interop.Recorder",
            "vm",
            "Interop.Recorder",
            moment("2026-11-22 16:44:33.431215"),
            None,
            None,
            True,
        ),
        ("5e7843f4-470c-48b0-8ffc-e101d7161704", *NOTHING, False),
        (
            "af376d19-27b7-4066-b153-83c63a08452e",
            HANDLER,
            INVALID,
            "cannot do order h2",
            "Interop.Handler",
            "vm",
            "Interop.Source",
            moment("2026-11-22 17:32:17.122793"),
            moment("2026-11-22 17:00:00"),
            moment("2026-11-22 17:00:00"),
            True,
        ),
        (
            "e074c0d9-50d7-4fb7-a23c-3c6fd0aa1d59",
            None,
            None,
            None,
            "Interop.Subscriber",
            "vm",
            "Interop.Recorder",
            None,
            moment("2026-11-22 16:44:30.038722"),
            moment("2026-11-22 16:44:30.082154"),
            False,
        ),
    ]
    found = told(frame).select(*NAMES)
    assert_df_equality(found, spark.createDataFrame(expected, COLUMNS), ignore_nullable=True)
    traces = [row.StackTrace for row in told(frame).select("StackTrace").collect()]
    assert [trace and trace.splitlines()[0] for trace in traces] == [
        None,
        f"{INVALID}: cannot do order f2",
        f"{INVALID}: cannot do order f1",
        None,
        f"{INVALID}: cannot do order h2",
        None,
    ]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_hostile_headers_are_never_an_error(spark, ansi):
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        given = [(str(number), text) for number, text in enumerate(HOSTILE)]
        frame = spark.createDataFrame([*given, ("none", None)], "Id string, Headers string")
        expected = [
            tuple({"Id": str(number), "IsFailure": False, **known}.get(name) for name in NAMES)
            for number, known in enumerate(HOSTILE.values())
        ]
        schema = spark.createDataFrame([*expected, ("none", *NOTHING, False)], COLUMNS)
        assert_df_equality(told(frame).select(*NAMES), schema, ignore_nullable=True)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_the_columns_of_the_frame_stay(spark):
    frame = rows_of(spark, {"error": 3}).withColumn("Mine", functions.message_type())
    added = [
        "FailedQueue",
        "ExceptionType",
        "ExceptionMessage",
        "StackTrace",
        "ProcessingEndpoint",
        "ProcessingMachine",
        "OriginatingEndpoint",
        "TimeOfFailure",
        "ProcessingStarted",
        "ProcessingEnded",
        "IsFailure",
    ]
    assert told(frame).columns == ["Id", "Headers", "Mine", *added]
    assert_df_equality(told(frame).select("Id", "Headers", "Mine"), frame)
