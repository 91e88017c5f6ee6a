"""Guarantees of an acknowledgement that a broker's settings leave out. Pure (broker.md §17.2, §19.9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def left_out(values: Mapping[str, str]) -> Iterator[str]:
    """Return the guarantees that an acknowledgement of a broker lacks, in sentences; none for settings of zero loss.

    Args:
        values: its settings by RocketMQ's keys. A missing key counts as unknown, not as a missing guarantee.
    """
    if values.get("flushDiskType", "").upper() == "ASYNC_FLUSH":
        yield "flushDiskType=ASYNC_FLUSH acknowledges before the disk has a message"
    group = values.get("enableDLegerCommitLog", "").lower() == "true"
    role = values.get("brokerRole", "").upper()
    if role == "ASYNC_MASTER" and not group:
        yield "brokerRole=ASYNC_MASTER acknowledges before a slave has a message"
    needed = values.get("inSyncReplicas", "")
    theirs = "tianzhouVersion" not in values and "durability" not in values
    if role == "SYNC_MASTER" and not group and theirs and needed == "1":
        yield "inSyncReplicas=1 at RocketMQ 5 waits for no slave, though the role is SYNC_MASTER"
    if values.get("cleanFileForciblyEnable", "").lower() == "true":
        yield "cleanFileForciblyEnable=true deletes messages before their time when the disk is full"
