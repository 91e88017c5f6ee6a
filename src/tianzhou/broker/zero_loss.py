"""`durability=zero-loss`: one key for all those that keep an acknowledged message (broker.md §17.2, §19.9). Pure.

RocketMQ has no such key. What it sets can be read in the broker's settings, as if each of them had been written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tianzhou.errors import ConfigError
from tianzhou.escaping import shown
from tianzhou.setting_rules import SettingProblem

KEY: Final = "durability"
ZERO_LOSS: Final = "zero-loss"
MEMBERS: Final = 3
"""Members below which a group has no majority when one of them is away."""

_FOR_ALL: Final = {
    "flushDiskType": ("SYNC_FLUSH", "acknowledges after the disk has a message"),
    "cleanFileForciblyEnable": ("false", "a full disk refuses messages, and deletes none before its time"),
}
_FOR_MASTERS: Final = {
    "brokerRole": ("SYNC_MASTER", "acknowledges after a slave has a message"),
    "inSyncReplicas": ("2", "waits for the master and one slave at least"),
    "minInSyncReplicas": ("2", "refuses a message before it is stored while no slave is in sync"),
    "enableAutoInSyncReplicas": ("false", "waits for the slave also when it is away"),
}


def with_profile(values: Mapping[str, str]) -> dict[str, str]:
    """Settings with those that their `durability` asks for, where they do not set them themselves.

    What they do set otherwise is left as it is: `contradictions` names it.

    Args:
        values: RocketMQ's keys to values, as somebody wrote them.

    Raises:
        ConfigError: there is no such profile.
    """
    profile = values.get(KEY, "").strip()
    if not profile:
        return dict(values)
    if profile != ZERO_LOSS:
        raise ConfigError(f"{KEY}={shown(profile)}: expected {ZERO_LOSS}, or remove the key for RocketMQ's settings")
    return {key: wanted for key, (wanted, _) in _wanted(values).items()} | dict(values)


def contradictions(values: Mapping[str, str]) -> Iterator[SettingProblem]:
    """Settings that would lose what `durability` promises.

    Args:
        values: keys to values, as they are in force.
    """
    if values.get(KEY, "").strip() != ZERO_LOSS:
        return
    for key, (wanted, why) in _wanted(values).items():
        present = values.get(key, wanted).strip()
        if not _is_enough(key, present, wanted):
            yield SettingProblem(key, present, f"{KEY}={ZERO_LOSS} wants {wanted}, which {why}; remove one of the two")
    if _is_member(values):
        peers = [peer for peer in values.get("dLegerPeers", "").split(";") if peer.strip()]
        if len(peers) < MEMBERS:
            yield SettingProblem(
                "dLegerPeers",
                values.get("dLegerPeers", ""),
                f"{KEY}={ZERO_LOSS} wants {MEMBERS} members, so that a majority is left when one is away",
            )


def described(values: Mapping[str, str]) -> str:
    """What the profile stands for with these settings, for the start of a broker; empty without it."""
    if values.get(KEY, "").strip() != ZERO_LOSS:
        return ""
    stands_for = ", ".join(f"{key}={values.get(key, wanted)}" for key, (wanted, _) in _wanted(values).items())
    return f"{KEY}={ZERO_LOSS}: {stands_for}"


def _wanted(values: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    # A member of a group is what it is elected; a slave acknowledges nothing.
    if _is_member(values) or values.get("brokerRole", "").strip() == "SLAVE":
        return dict(_FOR_ALL)
    return _FOR_ALL | _FOR_MASTERS


def _is_member(values: Mapping[str, str]) -> bool:
    return values.get("enableDLegerCommitLog", "").strip().lower() == "true"


def _is_enough(key: str, present: str, wanted: str) -> bool:
    if key in ("inSyncReplicas", "minInSyncReplicas"):
        return present.isdecimal() and int(present) >= int(wanted)
    return present.lower() == wanted.lower()
