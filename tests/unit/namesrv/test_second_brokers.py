"""Two brokers of one name and id: the first living one stays registered, and both are informed of the other
(docs/adr/0024).
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from test_places_of_brokers import OURS, SECOND, Desk

from tianzhou.namesrv.second_brokers import FORGET_MS, MOST, SecondBrokers, may_replace
from tianzhou.wire.command import Command
from tianzhou.wire.mastership import OTHER_MASTER, Mastership, mastership_of

FIRST, OTHER = f"{OURS}:10911", f"{OURS}:20911"
PLAIN = Mastership()
THREE = frozenset({"n0", "n1", "n2"})


def leader(term: int, members: frozenset[str] = THREE, group: str = "g", group_id: str = "") -> Mastership:
    return Mastership(group, members, term, group_id)


def register(
    desk: Desk, connection: object, address: str, mastership: Mastership | None = PLAIN, **changes: object
) -> Command:
    """Register like a broker of ours."""
    inner = desk.ask

    def ask(to: object, command: Command) -> Command:
        return inner(to, Command(command.code, fields=command.fields | fields, body=command.body, version=479))  # type: ignore[arg-type]

    fields = {} if mastership is None else mastership.as_fields()
    desk.ask = ask  # type: ignore[method-assign, assignment]
    try:
        return desk.register(connection, address, **changes)  # type: ignore[arg-type]
    finally:
        desk.ask = inner  # type: ignore[method-assign]


def test_a_second_master_is_refused_and_both_learn_of_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    (first, _), (second, _) = desk.connect(OURS), desk.connect(OURS)
    assert register(desk, first, FIRST).code == 0
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            refused = register(desk, second, OTHER)
            assert (refused.code, refused.fields[OTHER_MASTER]) == (16, FIRST)
    assert FIRST in str(refused.remark)
    assert desk.routes.members("broker-a") == {0: FIRST}
    (line,) = caplog.messages
    assert FIRST in line
    assert OTHER in line
    assert register(desk, first, FIRST).fields[OTHER_MASTER] == OTHER
    desk.clock.advance(FORGET_MS / 1000 + 1)
    assert register(desk, first, FIRST).fields[OTHER_MASTER] == ""


def test_the_place_is_free_once_the_first_master_is_gone(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (first, transport), (second, _) = desk.connect(OURS), desk.connect(OURS)
    register(desk, first, FIRST)
    assert register(desk, second, OTHER).code == 16
    desk.unregister(first, FIRST)
    assert register(desk, second, OTHER).code == 0
    assert register(desk, first, FIRST).code == 16
    desk.unregister(second, OTHER)
    register(desk, first, FIRST)
    transport.lose()
    first.connection_lost(None)
    assert register(desk, second, OTHER).code == 0
    assert desk.routes.members("broker-a") == {0: OTHER}


def test_a_slave_beside_the_master_and_the_master_itself_are_taken(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (first, _), (again, _), (slave, _) = (desk.connect(OURS) for _ in range(3))
    assert register(desk, first, FIRST).code == 0
    assert register(desk, again, FIRST).code == 0
    assert register(desk, slave, OTHER, None, broker_id=1).code == 0
    assert desk.routes.members("broker-a") == {0: FIRST, 1: OTHER}


def test_a_second_slave_of_the_same_id_is_refused_and_both_learn_of_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    (master, _), (first, transport), (second, _) = (desk.connect(OURS) for _ in range(3))
    one, two = f"{OURS}:30911", f"{OURS}:40911"
    assert register(desk, master, FIRST).code == 0
    assert register(desk, first, one, broker_id=1).code == 0
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            refused = register(desk, second, two, broker_id=1)
            assert (refused.code, refused.fields[OTHER_MASTER]) == (16, one)
    assert "give it another brokerId" in str(refused.remark)
    (line,) = caplog.messages
    assert "two brokers broker-a with brokerId=1" in line
    assert one in line
    assert two in line
    assert register(desk, first, one, broker_id=1).fields[OTHER_MASTER] == two
    assert register(desk, master, FIRST).fields[OTHER_MASTER] == ""
    # Another id is free, and the id itself at once when its holder has ended.
    assert register(desk, second, two, broker_id=2).code == 0
    transport.lose()
    first.connection_lost(None)
    assert register(desk, second, two, broker_id=1).code == 0
    assert desk.routes.members("broker-a") == {0: FIRST, 1: two}


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_broker_of_apaches_does_not_take_the_place_of_a_living_one_of_ours(tmp_path: Path, broker_id: int) -> None:
    desk = Desk(tmp_path)
    (first, _), (second, _) = desk.connect(OURS), desk.connect(OURS)
    assert register(desk, first, FIRST, broker_id=broker_id).code == 0
    refused = register(desk, second, OTHER, None, broker_id=broker_id)
    assert refused.code == 16
    assert FIRST in str(refused.remark)
    assert register(desk, first, FIRST, broker_id=broker_id).fields[OTHER_MASTER] == OTHER
    desk.unregister(first, FIRST)
    assert register(desk, second, OTHER, None, broker_id=broker_id).code == 0


@pytest.mark.parametrize("holder", [None, leader(3)], ids=["apache", "group"])
def test_a_broker_of_apaches_that_is_let_in_beside_a_living_one_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, holder: Mastership | None
) -> None:
    desk = Desk(tmp_path)
    (first, _), (second, _) = desk.connect(OURS), desk.connect(OURS)
    assert register(desk, first, FIRST, holder).code == 0
    with caplog.at_level(logging.WARNING):
        assert register(desk, second, OTHER, None).code == 0
    assert caplog.messages == [
        f"two brokers broker-a with brokerId=0: {OTHER} has registered and takes the place of {FIRST}, which is alive"
    ]


def test_the_next_leader_of_a_group_takes_the_place_of_one_that_is_held_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (first, _), (second, _) = desk.connect(OURS), desk.connect(OURS)
    assert register(desk, first, FIRST, leader(3)).code == 0
    assert register(desk, second, OTHER, leader(4)).code == 0
    assert desk.routes.members("broker-a") == {0: OTHER}
    # The one that hung is informed that it does not lead any more.
    assert register(desk, first, FIRST, leader(3)).code == 16


@pytest.mark.parametrize(
    ("holder", "claimant", "replaces"),
    [
        (leader(3), leader(4), True),
        (None, leader(1), True),  # one of Apache's members, which sends no such field
        (leader(3), leader(3), False),
        (leader(4), leader(3), False),
        (leader(3), leader(4, frozenset({"n0"})), False),  # a list with itself alone
        (leader(3), leader(4, frozenset({"n0", "n8", "n9"})), False),
        (leader(3), leader(4, frozenset({"n0", "n1"})), True),
        (leader(3), leader(4, frozenset({"n0", "n1", "n2", "n3", "n4"})), True),
        (leader(3), leader(4, group="h"), False),
        (leader(3, group_id="aa"), leader(4, group_id="bb"), False),
        (leader(3, group_id="aa"), leader(4), True),
        (Mastership(), leader(4), False),
        (leader(3), Mastership(), False),
        (None, Mastership(), False),
        (None, None, True),  # both are Apache's
        (leader(3), None, True),  # one of Apache's members may be the next leader
        (Mastership(), None, False),
        (Mastership(), Mastership(), False),
    ],
)
def test_which_broker_may_replace_a_living_one(
    holder: Mastership | None, claimant: Mastership | None, replaces: bool
) -> None:
    assert may_replace(holder, claimant) is replaces


def test_what_a_registration_says_of_its_right() -> None:
    right = leader(7, group_id="aa")
    assert mastership_of(right.as_fields()) == right
    assert mastership_of({}) is None
    assert mastership_of(right.as_fields() | {"tianzhouTerm": "-1"}) is None


def test_refused_masters_are_bounded() -> None:
    masters = SecondBrokers()
    for number in range(MOST + 1):
        assert masters.refused(("c", f"b{number}", 0), "a", 0)
    assert masters.other(("c", "b0", 0), 0) == ""
    assert masters.other(("c", f"b{MOST}", 0), 0) == "a"
    assert masters.other(("c", f"b{MOST}", 1), 0) == ""


def test_a_stranger_of_another_host_is_refused_as_before(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (first, _), (stranger, _) = desk.connect(OURS), desk.connect(SECOND)
    register(desk, first, FIRST, leader(3))
    assert register(desk, stranger, f"{SECOND}:10911", leader(9)).code == 16
    assert desk.routes.members("broker-a") == {0: FIRST}
