"""Settings of a DLedger group that cannot work are refused with the remedy (broker.md §19.1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tianzhou.store.settings import StoreSettings, parse_peers

GOOD: dict[str, Any] = {
    "enable_d_leger_commit_log": True, "d_leger_group": "g", "d_leger_peers": "n0-a:1;n1-b-c:2;n2-[::1]:3;",
    "d_leger_self_id": "n1", "store_path_root_dir": "/r",
}  # fmt: skip


def test_peers() -> None:
    assert parse_peers("n0-a:1; n1-b-c:2;n2-[::1]:3;") == {"n0": "a:1", "n1": "b-c:2", "n2": "[::1]:3"}


@pytest.mark.parametrize(
    "text",
    ["n0", "n0-a", "n0-a:", "n0-:1", "n0-a:70000", "n0-a:0", "-a:1", "zero-a:1", "n0-a:1;n0-b:2", "n0-a:1;n1-a:1"],
)
def test_peers_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="dLegerPeers="):
        parse_peers(text)


def test_folders() -> None:
    settings = StoreSettings(**GOOD)
    assert settings.commit_log_directories == [Path("/r/dledger-n1/data")]
    assert settings.read_only_directories == [Path("/r/commitlog")]
    moved = StoreSettings(**GOOD, store_path_d_ledger_commit_log="/a,/b", preferred_leader_id="n2;n0")
    assert moved.commit_log_directories == [Path("/a"), Path("/b")]
    assert moved.preferred_leaders == ("n2", "n0")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"d_leger_group": " "}, "dLegerGroup is not set"),
        ({"d_leger_peers": ""}, "dLegerPeers is not set"),
        ({"d_leger_peers": "n1"}, "dLegerPeers=n1"),
        ({"d_leger_self_id": "n7"}, "dLegerSelfId=n7.*expected one of n0, n1, n2"),
        ({"preferred_leader_id": "n0;n9"}, "n9 is no member"),
        ({"broker_role": "SLAVE"}, "the group decides"),
    ],
)
def test_groups_that_cannot_be(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StoreSettings(**{**GOOD, **change})


def test_without_a_group_its_settings_are_left_alone() -> None:
    assert StoreSettings(d_leger_peers="what?", store_path_root_dir="/r").commit_log_directories == [
        Path("/r/commitlog")
    ]
