"""Whoever may only write SQL names no code: a session allows some, by Python."""

import re

import pytest
from pyspark.errors import PySparkException

import sqlqueue_spark

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
        "The accessTokenProvider 'socket:gethostname' is code, a file or a login of this machine, which a user who may "
    )
    session.conf.set("spark.sqlqueue.allowed", "socket:gethostname")  # as SET does
    assert refusal(session, url).startswith("The accessTokenProvider 'socket:gethostname' is code")
    sqlqueue_spark.register(session, allowed=["socket:gethostname"])
    assert "refused the Microsoft Entra token" in refusal(session, url)
