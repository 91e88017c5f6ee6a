"""`durability=zero-loss`: the settings it implies, contradictions, and that neither a start nor a request can
undo it.
"""

from __future__ import annotations

import pytest

from tianzhou.broker.changeable_settings import RULES
from tianzhou.broker.settings import BrokerSettings
from tianzhou.broker.zero_loss import contradictions, described, with_profile
from tianzhou.errors import ConfigError
from tianzhou.setting_rules import check
from tianzhou.settings import bind, dump
from tianzhou.store.settings import StoreSettings

ZERO_LOSS = {"durability": "zero-loss"}
MEMBER = ZERO_LOSS | {
    "enableDLegerCommitLog": "true",
    "dLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3",
}


def store(values: dict[str, str]) -> StoreSettings:
    found = bind(StoreSettings, with_profile(values))
    check(RULES, BrokerSettings(), found, source="broker.conf")
    return found


def test_a_master_waits_for_its_disk_and_a_slave_and_deletes_nothing_early() -> None:
    found = store(ZERO_LOSS)
    assert (found.flush_disk_type, found.broker_role) == ("SYNC_FLUSH", "SYNC_MASTER")
    assert (found.in_sync_replicas, found.min_in_sync_replicas) == (2, 2)
    assert not found.enable_auto_in_sync_replicas
    assert not found.clean_file_forcibly_enable


def test_a_slave_stays_one_and_syncs() -> None:
    found = store(ZERO_LOSS | {"brokerRole": "SLAVE"})
    assert (found.flush_disk_type, found.broker_role, found.in_sync_replicas) == ("SYNC_FLUSH", "SLAVE", 1)


def test_a_member_of_a_group_is_what_it_is_elected() -> None:
    assert with_profile(MEMBER).get("brokerRole") is None
    assert list(contradictions(with_profile(MEMBER))) == []


def test_without_the_key_nothing_changes() -> None:
    assert with_profile({"flushDiskType": "ASYNC_FLUSH"}) == {"flushDiskType": "ASYNC_FLUSH"}
    assert described({}) == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flushDiskType", "ASYNC_FLUSH"),
        ("brokerRole", "ASYNC_MASTER"),
        ("inSyncReplicas", "1"),
        ("minInSyncReplicas", "1"),
        ("enableAutoInSyncReplicas", "true"),
        ("cleanFileForciblyEnable", "true"),
    ],
)
def test_what_contradicts_it_is_refused_by_both_names(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"broker\.conf: {key}={value}: durability=zero-loss wants .*remove one"):
        store(ZERO_LOSS | {key: value})


def test_more_than_it_asks_for_is_no_contradiction() -> None:
    assert store(ZERO_LOSS | {"inSyncReplicas": "3"}).in_sync_replicas == 3


def test_a_group_of_two_is_refused() -> None:
    two = MEMBER | {"dLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2"}
    assert ["3 members" in str(problem) for problem in contradictions(with_profile(two))] == [True]


def test_another_profile_is_refused_with_what_there_is() -> None:
    with pytest.raises(ConfigError, match="durability=safe: expected zero-loss"):
        with_profile({"durability": "safe"})


def test_the_start_says_what_it_stands_for() -> None:
    assert described(with_profile(ZERO_LOSS)) == (
        "durability=zero-loss: flushDiskType=SYNC_FLUSH, cleanFileForciblyEnable=false, brokerRole=SYNC_MASTER, "
        "inSyncReplicas=2, minInSyncReplicas=2, enableAutoInSyncReplicas=false"
    )


def test_a_request_cannot_undo_it() -> None:
    assert "inSyncReplicas" in RULES.changeable
    values = dump(BrokerSettings(), StoreSettings()) | with_profile(ZERO_LOSS) | {"inSyncReplicas": "1"}
    found = [problem.key for problem in RULES.across(values)]
    assert found == ["inSyncReplicas"]
    assert "durability" not in RULES.changeable
