"""`durability=zero-loss`: one key for all settings that preserve acknowledged messages (broker.md §17.2, §19.9). Pure.

RocketMQ has no such key. The broker's settings show each value that the key sets.
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
"""Minimum members of a group that has a majority while one member is away."""

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
    """Return the settings, completed with the values of their `durability` profile.

    Explicit values stay, even when they contradict the profile; `contradictions` reports these.

    Args:
        values: RocketMQ's keys to values, as configured.

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
    """Yield the settings that contradict the `durability` profile.

    Args:
        values: keys to values in force.
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
    """Return a line with the values that the profile sets, for the log at the start; empty without a profile."""
    if values.get(KEY, "").strip() != ZERO_LOSS:
        return ""
    stands_for = ", ".join(f"{key}={values.get(key, wanted)}" for key, (wanted, _) in _wanted(values).items())
    return f"{KEY}={ZERO_LOSS}: {stands_for}"


def _wanted(values: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    # An election sets the role of a member of a group, and a slave acknowledges no message.
    if _is_member(values) or values.get("brokerRole", "").strip() == "SLAVE":
        return dict(_FOR_ALL)
    return _FOR_ALL | _FOR_MASTERS


def _is_member(values: Mapping[str, str]) -> bool:
    return values.get("enableDLegerCommitLog", "").strip().lower() == "true"


def _is_enough(key: str, present: str, wanted: str) -> bool:
    if key in ("inSyncReplicas", "minInSyncReplicas"):
        return present.isdecimal() and int(present) >= int(wanted)
    return present.lower() == wanted.lower()
