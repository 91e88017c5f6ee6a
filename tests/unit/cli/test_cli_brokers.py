"""`serve --brokers N`: number, ports, topics, and restarts of brokers."""

from __future__ import annotations

import asyncio
import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
from fake_brokers import Brokers, supervised
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.cli.brokers.child import BrokerReady, Failed, Prefixed, answer_of
from tianzhou.cli.brokers.kinds import Several
from tianzhou.cli.brokers.plan import MOST_BROKERS, broker_count, plan_ports, ports_of
from tianzhou.cli.brokers.processes import ended_how
from tianzhou.cli.brokers.restarts import LONGEST_PAUSE_S, MOST_IN_A_ROW, STEADY_S, Restarts
from tianzhou.cli.brokers.shared_topics import SharedTopics
from tianzhou.cli.brokers.supervisor import LOCKED_LIMIT_S, LOCKED_STEP_S, BrokersSupervisor
from tianzhou.data_folder import broker_name
from tianzhou.embedded import EmbeddedSettings
from tianzhou.errors import ConfigError, StoreLocked, TianzhouError
from tianzhou.model import TopicConfig
from tianzhou.testing.clock import VirtualClock, run

NAMES = ["broker-a", "broker-b", "broker-c"]


# --- how many ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "present", "cores", "count"),
    [
        (None, 1, 8, 1),
        (None, 3, 8, 3),
        ("auto", 1, 8, 8),
        ("auto", 3, 2, 3),  # the folder comes from a larger machine
        ("auto", 1, 500, MOST_BROKERS),
        ("1", 1, 8, 1),
        ("4", 2, 2, 4),
        ("1", 3, 8, 1),  # refused by the folder, which names the brokers it would lose
    ],
)
def test_how_many_brokers(option: str | None, present: int, cores: int, count: int) -> None:
    assert broker_count(option, present, cores) == count


@pytest.mark.parametrize("option", ["0", "-1", "65", "x", "", "2.5", "٣", "AUTO", " 2"])
def test_what_is_no_number_of_brokers(option: str) -> None:
    with pytest.raises(ConfigError, match=f"--brokers {option}: expected a whole number from 1 to 64, or auto"):
        broker_count(option, 1, 8)


# --- ports ---------------------------------------------------------------------------------------------------


def plan(count: int, base: int = 10_911, *, busy: frozenset[int] = frozenset(), **other: Any) -> list[int]:
    names = [broker_name(index) for index in range(count)]
    options = {"saved": {}, "taken": (9876,), "is_free": lambda port: port not in busy} | other
    return list(plan_ports(names, base, **options).values())


def test_the_first_broker_has_the_base_and_the_others_what_is_free_above() -> None:
    assert plan(1) == [10_911]
    assert plan(4) == [10_911, 10_915, 10_919, 10_923]
    assert plan(3, busy=frozenset({10_913})) == [10_911, 10_916, 10_920]
    assert plan(2, busy=frozenset({10_911})) == [10_911, 10_915]  # the starter gets an error about the busy port
    assert plan(2, base=9874) == [9874, 9879]  # the name server has 9876


def test_ports_stay_as_long_as_the_base_does() -> None:
    saved = {"broker-a": 10_911, "broker-b": 10_920, "broker-c": 10_915}
    busy = frozenset(range(10_900, 10_930))  # for example by the same brokers, about to exit
    assert plan(3, saved=saved, busy=busy) == [10_911, 10_920, 10_915]
    assert plan(4, saved=saved) == [10_911, 10_920, 10_915, 10_924]
    assert plan(3, base=20_000, saved=saved) == [20_000, 20_004, 20_008]
    assert plan(2, saved={"broker-a": 10_911, "broker-b": 10_912}) == [10_911, 10_915]  # cannot be
    assert plan(2, saved=saved, taken=(10_918,)) == [10_911, 10_915]  # the name server has moved there


def test_there_have_to_be_enough_ports() -> None:
    with pytest.raises(ConfigError, match="--broker-port 65530: no free ports above it for 3 brokers"):
        plan(3, base=65_530)


@given(
    st.integers(1, MOST_BROKERS),
    st.integers(3, 60_000),
    st.frozensets(st.integers(10_900, 11_000)),
    st.dictionaries(st.sampled_from([broker_name(index) for index in range(6)]), st.integers(1, 65_535)),
)
def test_no_two_brokers_ever_share_a_port(count: int, base: int, busy: frozenset[int], saved: dict[str, int]) -> None:
    planned = plan(count, base, busy=busy, saved=saved)
    used = list(itertools.chain.from_iterable(ports_of(port) for port in planned))
    assert len(set(used)) == len(used)
    assert 9876 not in used[3:]
    assert (
        plan(count, base, busy=busy, saved=dict(zip(map(broker_name, range(count)), planned, strict=True))) == planned
    )


# --- starting again ------------------------------------------------------------------------------------------


def test_pauses_grow_until_it_has_been_tried_often_enough() -> None:
    restarts = Restarts()
    pauses = [restarts.ended(0.5) for _ in range(MOST_IN_A_ROW)]
    assert pauses[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4]
    assert set(pauses[6:]) == {LONGEST_PAUSE_S}
    assert restarts.ended(STEADY_S - 1) is None
    assert restarts.count == MOST_IN_A_ROW


def test_who_has_served_for_a_while_is_forgiven() -> None:
    restarts = Restarts()
    assert [restarts.ended(served) for served in (1, 1, STEADY_S, 1, 3_600)] == [0.2, 0.4, 0.2, 0.4, 0.2]
    for _ in range(100):
        assert restarts.ended(STEADY_S) == 0.2
    assert restarts.count == 105


# already created at the first request


def topics(*names: str) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, 4, 4) for name in names}


def test_a_topic_made_on_one_broker_is_wanted_on_the_others() -> None:
    shared = SharedTopics(NAMES)
    for name in NAMES:
        assert shared.registered(name, topics("TBW102", name)) == {}
    missing = shared.registered("broker-b", topics("TBW102", "broker-b", "orders"))
    assert missing == {"broker-a": [TopicConfig("orders", 4, 4)], "broker-c": [TopicConfig("orders", 4, 4)]}
    assert shared.registered("broker-b", topics("TBW102", "broker-b", "orders")) == {}  # A topic created again is new.
    assert shared.registered("broker-a", topics("TBW102", "broker-a", "orders")) == {}


def test_a_new_broker_gets_what_the_others_have_and_brings_what_it_has() -> None:
    shared = SharedTopics(NAMES)
    shared.registered("broker-a", topics("old", "older"))
    missing = shared.registered("broker-b", topics("own"))
    assert {name: [config.topic_name for config in configs] for name, configs in missing.items()} == {
        "broker-a": ["own"],
        "broker-b": ["old", "older"],
    }


def test_one_that_comes_back_gets_what_was_made_meanwhile() -> None:
    shared = SharedTopics(NAMES[:2])
    for name in NAMES[:2]:
        shared.registered(name, topics("orders"))
    shared.gone("broker-b")
    assert shared.registered("broker-a", topics("orders", "news")) == {}
    assert shared.registered("broker-b", topics("orders")) == {"broker-b": [TopicConfig("news", 4, 4)]}


def test_what_is_being_deleted_is_not_brought_back() -> None:
    shared = SharedTopics(NAMES)
    for name in NAMES:
        shared.registered(name, topics("orders"))
    for name in NAMES:
        assert shared.registered(name, {}) == {}
    # And made again, it is new.
    assert set(shared.registered("broker-c", topics("orders"))) == {"broker-a", "broker-b"}


@pytest.mark.parametrize("name", ["%RETRY%g", "%DLQ%g", "rmq_sys_REVIVE_LOG_x", "RMQ_SYS_TRACE_TOPIC", "broker-c"])
def test_what_brokers_make_for_themselves_is_left_to_them(name: str) -> None:
    shared = SharedTopics(NAMES)
    shared.registered("broker-a", {})
    assert shared.registered("broker-b", topics(name)) == {}


def test_brokers_of_somebody_else_are_left_alone() -> None:
    shared = SharedTopics(NAMES)
    shared.registered("broker-a", topics("ours"))
    assert shared.registered("elsewhere", topics("theirs")) == {}
    assert shared.registered("broker-b", topics("ours")) == {}


# --- what processes say --------------------------------------------------------------------------------------


def test_answers_of_a_process_are_understood() -> None:
    assert answer_of(b'{"ready": {"address": "127.0.0.1:1", "mode": "pure"}}\n') == BrokerReady("127.0.0.1:1", "pure")
    failed = b'{"failed": {"reason": "no room", "code": 2, "locked": true}}\n'
    assert answer_of(failed) == Failed("no room", 2, locked=True)
    assert answer_of(b"") is None
    assert answer_of(b'{"ready": {"addr') is None


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "ended with code 0"), (3, "ended with code 3"), (-9, "was ended by SIGKILL"), (-99, "was ended by signal 99")],
)
def test_how_a_process_ended_is_shown(code: int, text: str) -> None:
    assert ended_how(code) == text


class Lines:
    def __init__(self) -> None:
        self.writes: list[str] = []

    def write(self, text: str) -> None:
        self.writes.append(text)

    def flush(self) -> None:
        pass


def test_every_line_begins_with_the_broker_and_is_written_whole() -> None:
    lines = Lines()
    out = Prefixed(lines, "broker-b: ")  # type: ignore[arg-type]
    for text in ("one", " and a half\ntwo\n", "\n", "rest"):
        out.write(text)
    assert lines.writes == ["broker-b: one and a half\nbroker-b: two\n", "broker-b: \n"]


def test_a_reader_that_is_gone_hinders_nobody() -> None:
    class Closed(Lines):
        def write(self, text: str) -> None:
            raise BrokenPipeError

    assert Prefixed(Closed(), "x: ").write("line\n") == 5  # type: ignore[arg-type]


# --- looking after them --------------------------------------------------------------------------------------


def test_one_that_ends_is_started_again_and_the_others_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(brokers: Brokers) -> None:
        await asyncio.sleep(30)
        brokers.last("broker-b").end(-9)
        await asyncio.sleep(1)
        assert (brokers.starts("broker-a"), brokers.starts("broker-b")) == (1, 2)
        assert brokers.started[1].order == brokers.last("broker-b").order  # same port, same folder

    with caplog.at_level(logging.WARNING):
        brokers = supervised(tmp_path, work)
    ended, again = (record.getMessage() for record in caplog.records)
    assert ended == (
        "broker-b: process 101 was ended by SIGKILL after it had served for 30 s; it is started again in 0.2 s"
        " (restart 1)"
    )
    assert again == "broker-b serves again, process 102"
    assert [one.asked for one in brokers.started] == [["terminate"], [], ["terminate"]]
    assert brokers.supervisor.unclean == []


def test_one_that_keeps_ending_ends_everything_with_a_reason(tmp_path: Path) -> None:
    async def work(brokers: Brokers) -> None:
        over = asyncio.ensure_future(brokers.supervisor.over())
        began = brokers.clock.monotonic()
        while not over.done():
            brokers.last("broker-b").end(1)
            await asyncio.sleep(0.05)
        assert brokers.starts("broker-b") == 1 + MOST_IN_A_ROW
        assert 40 < brokers.clock.monotonic() - began < 120
        assert not brokers.last("broker-a").code.done()

    brokers = supervised(tmp_path, work)
    failure = brokers.supervisor.failure
    assert failure.startswith(f"broker-b ended {MOST_IN_A_ROW + 1} times without ever serving for a minute")
    assert str(tmp_path / "data" / "broker-b") in failure
    assert brokers.last("broker-a").asked == ["terminate"]


def test_one_that_cannot_be_started_again_is_tried_with_pauses(tmp_path: Path) -> None:
    async def work(brokers: Brokers) -> None:
        answers = brokers.says
        brokers.says = lambda order: Failed("no space left", 1)
        brokers.last("broker-a").end(1)
        await asyncio.sleep(5)
        assert brokers.starts("broker-a") == 1 + 4  # after 0.2, 0.6, 1.4 and 3 seconds
        brokers.says = answers
        await asyncio.sleep(10)
        assert isinstance(brokers.last("broker-a").says, BrokerReady)
        assert brokers.supervisor.failure == ""

    supervised(tmp_path, work)


def test_a_broker_that_cannot_start_in_the_beginning_ends_the_others(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def main() -> None:
        brokers = Brokers(tmp_path, clock)
        good = brokers.says
        brokers.says = lambda order: good(order) if order.name == "broker-a" else Failed("the port is taken", 2)
        with pytest.raises(ConfigError, match=r"^the port is taken$"):
            await brokers.supervisor.__aenter__()
        assert brokers.last("broker-a").asked == ["terminate"]
        brokers.says = lambda order: None
        other = Brokers(tmp_path / "other", clock)
        other.says = brokers.says
        with pytest.raises(TianzhouError, match=r"broker-[ab] ended with code 1 before it served"):
            await other.supervisor.__aenter__()

    run(main(), clock)


def test_a_store_that_is_still_held_is_waited_for_a_little(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def main() -> None:
        held = Failed("store x is in use by process 7", 2, locked=True)
        brokers = Brokers(tmp_path, clock)
        good = brokers.says
        brokers.says = lambda order: held if brokers.starts(order.name) < 4 else good(order)
        async with brokers.supervisor:
            assert (brokers.starts("broker-a"), brokers.starts("broker-b")) == (5, 5)
        for_ever = Brokers(tmp_path / "other", clock)
        for_ever.says = lambda order: held
        with pytest.raises(StoreLocked, match="in use by process 7"):
            await for_ever.supervisor.__aenter__()
        assert for_ever.starts("broker-a") == pytest.approx(LOCKED_LIMIT_S / LOCKED_STEP_S, abs=2)

    run(main(), clock)


def test_one_that_does_not_end_on_request_is_killed_and_named(tmp_path: Path) -> None:
    async def work(brokers: Brokers) -> None:
        brokers.last("broker-b").stubborn = True

    brokers = supervised(tmp_path, work)
    assert brokers.last("broker-b").asked == ["terminate", "kill"]
    assert brokers.supervisor.unclean == ["broker-b"]


def test_all_can_be_ended_at_once(tmp_path: Path) -> None:
    async def work(brokers: Brokers) -> None:
        brokers.supervisor.kill()
        assert [one.asked for one in brokers.started] == [["kill"]] * 3
        await asyncio.sleep(1)

    supervised(tmp_path, work, count=3)


def test_the_name_server_may_not_have_the_brokers_port(tmp_path: Path) -> None:
    for port in (10_911, 10_909):
        with pytest.raises(ConfigError, match=f"--namesrv-port {port}: the broker takes it"):
            BrokersSupervisor(EmbeddedSettings(tmp_path, namesrv_port=port), Several.of(3))
