"""Connections that break, and how long one lives: nothing is lost,
and the stream goes on without a restart.
"""

import sys
import threading
import types

import pytest

from sqlqueue_spark import fail_points
from sqlqueue_spark.engines.open_connection import Target, connect
from tests.conftest import GUARDED_ROLE
from tests.support.driver import STEPS, at_step, streaming
from tests.support.messages import row_ids
from tests.support.postgresql import PostgresEngine, restart


def test_a_stream_outlives_its_token(postgresql, guarded_url, monkeypatch):
    """The provider is asked before each new connection. The token is the password here, which changes each
    time after it was asked for; connections are cut meanwhile.
    """
    queue = postgresql.create_queue()
    queue.execute(f"GRANT SELECT, UPDATE, DELETE ON {{table}} TO {GUARDED_ROLE}")
    queue.insert(60)
    given: list[str] = []
    one_at_a_time = threading.Lock()

    def get():
        with one_at_a_time:  # a claim ahead asks on a thread of its own
            given.append(f"token {len(given)}")
            postgresql.execute(f"ALTER ROLE {GUARDED_ROLE} PASSWORD '{given[-1]}'")
            return given[-1]

    vault = types.ModuleType("vault")
    vault.get = get  # type: ignore[attr-defined] # a module of this test
    monkeypatch.setitem(sys.modules, "vault", vault)
    alone = PostgresEngine(guarded_url.replace(":open%20sesame", ""))
    with streaming(alone, queue, accessTokenProvider="vault:get", maxMessagesPerTrigger="20") as stream:
        while len(stream.ids()) < 60:
            stream.trigger()
            postgresql.cut_connections()
        stream.drain()
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(60)), 0, 0)
    assert len(given) > 3


@pytest.mark.parametrize("step", STEPS)
def test_connections_cut_at_any_step_cost_no_message(engine, queue, step):
    """And no restart."""
    queue.insert(100)
    with streaming(engine, queue, maxMessagesPerTrigger="30", minMessagesPerPartition="10") as stream:
        with at_step(step, engine.cut_connections, on={1, 3}) as cuts:
            stream.drain()
        assert cuts == [1, 3]
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


@pytest.mark.parametrize("immediate", [True, False], ids=["immediate", "fast"])
@pytest.mark.parametrize("step", [fail_points.OFFSET_LOGGED, fail_points.DELETED])
def test_a_server_restart_in_a_batch_costs_no_message(server, postgresql, step, immediate):
    queue = postgresql.create_queue()
    queue.insert(100)
    with streaming(postgresql, queue, maxMessagesPerTrigger="40") as stream:
        with at_step(step, lambda: restart(server, immediate=immediate)) as restarts:
            stream.drain()
        assert restarts == [1]
        assert (stream.ids(), queue.count(), stream.crashes) == (row_ids(range(100)), 0, 0)


def test_of_several_hosts_the_one_is_taken_that_takes_changes(postgresql):
    """After a fail-over the first of them may be a standby. A url may say otherwise."""
    place = postgresql.url.partition("@")[2].partition("/")[0]
    several = postgresql.url.replace(place, f"{place},{place}")
    for url, wanted in (
        (postgresql.url, "any"),
        (several, "read-write"),
        (f"{several}?target_session_attrs=any", "any"),
    ):
        with connect(Target(url=url)) as connection:
            assert connection._raw.info.get_parameters().get("target_session_attrs", "any") == wanted


def test_both_ends_give_up_a_machine_that_vanishes(postgresql):
    """Within a minute: before a stream gives up that waits for the other's rows."""
    with connect(Target(url=postgresql.url)) as connection:
        ours = connection._raw.info.get_parameters()
        names = ["keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"]
        assert [ours[name] for name in names] == ["30", "10", "3", "60000"]
        theirs = [name if name == "tcp_user_timeout" else f"tcp_{name}" for name in names]
        shown = [connection.execute(f"SHOW {name}")[0][0] for name in theirs]
        assert shown == ["30", "5", "3", "45000"]
    with connect(Target(url=f"{postgresql.url}?keepalives_idle=7")) as connection:
        ours = connection._raw.info.get_parameters()
        assert ours["keepalives_idle"] == "7"
