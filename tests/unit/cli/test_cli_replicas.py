"""`serve --replicas N`: members, their ports and settings, the folder, and refusals."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from fake_brokers import Brokers, supervised
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.cli.brokers.kinds import Group, member_count
from tianzhou.cli.brokers.plan import plan_ports
from tianzhou.data_folder import claim, claim_group, members_in, stores_in
from tianzhou.embedded import check_values
from tianzhou.errors import ConfigError

Run = Callable[..., tuple[int, str, str]]
GROUP = Group.of(3)


def ports(base: int = 10_911, *, busy: frozenset[int] = frozenset(), count: int = 3) -> dict[str, int]:
    kind = Group.of(count)
    return plan_ports(
        kind.names, base, saved={}, taken=(9876,), is_free=lambda port: port not in busy, ports_of=kind.ports_of,
        must_be_free=4,
    )  # fmt: skip


def test_members_listen_for_clients_for_each_other_and_share_no_port() -> None:
    assert ports() == {"n0": 10_911, "n1": 10_915, "n2": 10_919}
    assert GROUP.ports_of(10_911) == (10_911, 10_909, 10_912, 10_910)
    # Another process has the port that the second member would use for its peers.
    assert ports(busy=frozenset({10_914})) == {"n0": 10_911, "n1": 10_917, "n2": 10_921}


@given(st.integers(3, 9), st.integers(4, 60_000), st.frozensets(st.integers(10_900, 11_000)))
def test_no_two_members_ever_share_a_port(count: int, base: int, busy: frozenset[int]) -> None:
    used = [Group.of(count).ports_of(port) for port in ports(base, busy=busy, count=count).values()]
    flat = list(itertools.chain.from_iterable(used))
    assert len(set(flat)) == len(flat)
    assert not busy & set(itertools.chain.from_iterable(used[1:]))


def test_each_member_knows_all_of_them_and_itself() -> None:
    values = {name: GROUP.values(name, ports(), "127.0.0.1") for name in GROUP.names}
    assert {tuple(sorted(one.items() - {("dLegerSelfId", name)})) for name, one in values.items()} == {
        (
            ("dLegerGroup", "broker-a"),
            ("dLegerPeers", "n0-127.0.0.1:10910;n1-127.0.0.1:10914;n2-127.0.0.1:10918"),
            ("enableDLegerCommitLog", "true"),
        )
    }
    assert [values[name]["dLegerSelfId"] for name in GROUP.names] == ["n0", "n1", "n2"]
    assert {GROUP.broker_name(name) for name in GROUP.names} == {"broker-a"}


@pytest.mark.parametrize("option", [-1, 0, 1, 2, 10])
def test_groups_without_a_majority_or_beyond_reason_are_refused(option: int) -> None:
    with pytest.raises(ConfigError, match=f"--replicas {option}: expected 3 to 9"):
        member_count(option, 0)


def test_a_folder_says_how_many_members_it_was_made_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert member_count(None, members_in(data)) == 0
    claim_group(data, 3)
    claim_group(data, 3)
    assert member_count(None, members_in(data)) == 3
    assert json.loads((data / "tianzhou.json").read_text()) == {"layout": 3, "members": 3}
    assert stores_in(data) == [data / "n0" / "store", data / "n1" / "store", data / "n2" / "store"]
    with pytest.raises(
        ConfigError, match="holds a group of 3 members, whose number does not change; give --replicas 3"
    ):
        claim_group(data, 5)
    with pytest.raises(ConfigError, match="no single broker may serve one; give --replicas 3"):
        claim(data)


def test_a_folder_of_single_brokers_is_not_made_a_group(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    claim(tmp_path)
    with pytest.raises(ConfigError, match="holds the messages of single brokers"):
        claim_group(tmp_path, 3)
    assert members_in(tmp_path) == 0


@pytest.mark.parametrize("members", ["-1", "0", '"3"', "null", "1000"])
def test_a_damaged_mark_is_named(tmp_path: Path, members: str) -> None:
    (tmp_path / "tianzhou.json").write_text(f'{{"layout": 3, "members": {members}}}')
    with pytest.raises(ConfigError, match=r"its tianzhou\.json is damaged"):
        members_in(tmp_path)


def test_members_are_started_with_their_settings_and_looked_after(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(brokers: Brokers) -> None:
        brokers.last("n1").end(-9)
        await asyncio.sleep(1)
        assert [brokers.starts(name) for name in GROUP.names] == [1, 2, 1]
        assert brokers.last("n1").order == brokers.started[1].order

    with caplog.at_level(logging.WARNING):
        brokers = supervised(tmp_path, work, kind=GROUP)
    orders = {process.order.name: process.order for process in brokers.started}
    assert {order.broker_name for order in orders.values()} == {"broker-a"}
    assert {Path(order.home).name for order in orders.values()} == {"n0", "n1", "n2"}
    assert len({order.values["dLegerPeers"] for order in orders.values()}) == 1
    assert [orders[name].values["dLegerSelfId"] for name in GROUP.names] == ["n0", "n1", "n2"]
    assert "no member of the group has been elected for 30 s" in caplog.text


def test_settings_of_the_group_are_the_commands_own() -> None:
    for key in ("dLegerPeers", "dLegerSelfId", "dLegerGroup"):
        with pytest.raises(ConfigError, match="give --replicas N"):
            check_values({key: "x"})


def test_what_does_not_go_together_is_refused(run: Run, tmp_path: Path) -> None:
    serve = partial(run, "serve", "--data", tmp_path / "data")
    code, _, err = serve("--replicas", 2)
    assert code == 2
    assert "--replicas 2: expected 3 to 9" in err
    code, _, err = serve("--replicas", 3, "--brokers", 2)
    assert code == 2
    assert "--brokers 2 and --replicas 3 exclude each other" in err
    code, _, err = serve("--set", "durability=zero-loss")
    assert code == 2
    assert "durability=zero-loss: brokers of `tianzhou serve` have no copies; give --replicas 3" in err
    assert not (tmp_path / "data").exists()
