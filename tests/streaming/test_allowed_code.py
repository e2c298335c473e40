"""A user who may only write SQL names no code: a session allows some, by Python."""

import re
from functools import partial

import pytest
from pyspark.errors import PySparkException

import sqlqueue_spark
from sqlqueue_spark.pipeline import read_queue
from tests.support.asking_server import GSSAPI, asking
from tests.support.streams import to_each

VIEW = """CREATE OR REPLACE TEMPORARY VIEW code USING sqlqueue
OPTIONS (url '{url}', queue 'orders', accessTokenProvider 'socket:gethostname')"""


def refusal(spark, url):
    def look():
        spark.sql(VIEW.format(url=url))
        spark.sql("SELECT * FROM code").collect()

    with pytest.raises(PySparkException) as caught:
        look()
    found = re.findall(r"sqlqueue_spark\.errors\.\w+: (.*)$", str(caught.value), re.MULTILINE)
    assert found, str(caught.value)
    return found[-1]


def test_sql_names_no_code_that_the_session_does_not_allow(spark, postgresql, guarded_url):
    postgresql.create_queue()
    url = guarded_url.replace(":open%20sesame", "")
    session = spark.newSession()
    sqlqueue_spark.register(session)
    assert refusal(session, url).startswith(
        "The accessTokenProvider 'socket:gethostname' is code, a file or a login of this machine, "
        "which a user who may "
    )
    session.conf.set("spark.sqlqueue.allowed", "socket:gethostname")  # as SET does
    assert refusal(session, url).startswith("The accessTokenProvider 'socket:gethostname' is code")
    sqlqueue_spark.register(session, allowed=["socket:gethostname"])
    assert "refused the Microsoft Entra token" in refusal(session, url)


def test_sql_logs_in_with_no_ticket_of_the_machine(spark, tmp_path):
    """A program of the same session does, where its own options lead, and whatever SQL reads there."""
    session = spark.newSession()
    sqlqueue_spark.register(session)
    with asking(ask=GSSAPI) as server, asking(ask=GSSAPI) as another:
        given = [{"url": each.url(), "queue": "orders", "password": "x"} for each in (server, another)]
        read = read_queue(session, given[0])
        looks = [partial(streamed, read, tmp_path), *(partial(peeked, session, each) for each in given)]
        switched_off = []
        for look in looks:
            with pytest.raises(PySparkException) as caught:
                look()
            assert "GSSAPI" in str(caught.value)
            switched_off.append('requirement "!gss,!sspi" failed' in str(caught.value))
    assert switched_off == [False, False, True]


def streamed(read, folder):
    to_each(read, folder, print).start().awaitTermination(30)


def peeked(session, options):
    said = ", ".join(f"{name} '{value}'" for name, value in options.items())
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW peeked USING sqlqueue OPTIONS ({said})")
    session.sql("SELECT * FROM peeked").collect()
