"""Replacement folders that a restarted node of a simulated group may find."""

from __future__ import annotations

from random import Random

from memory_log import MemoryLog
from our_node import OurNode

from tianzhou.records.entry import HEADER_SIZE, decode_header
from tianzhou.replication.dledger.membership.identity import drawn_id
from tianzhou.replication.dledger.membership.joint import first_of_term
from tianzhou.replication.dledger.node import NO_DOUBT
from tianzhou.replication.dledger.ready import HardState, Keep, Opening


def wiped(node: OurNode) -> None:
    """Give a stopped node an empty folder."""
    _put(node, MemoryLog(), HardState(), Keep(""), -1)


def older(node: OurNode, rng: Random) -> None:
    """Give a stopped node a backup of its folder: a shorter log, and the term of that time."""
    log = node.log
    if not log.raw:
        return
    length = rng.randint(1, len(log.raw))
    before = MemoryLog(log.raw[:length])
    term = rng.randint(before.end_term, max(node.hard_state.term, before.end_term))
    _put(node, before, HardState(term, None), node.keep, min(node.checkpoint, before.end_index))


def foreign(node: OurNode, rng: Random, *, identified: bool, checkpoint: bool, more: int) -> set[bytes]:
    """Give a stopped node the folder of another group, with entries of the same indexes, terms and sizes.

    Args:
        node: the node.
        rng: random generator.
        identified: whether the folder has the group's identity.
        checkpoint: whether the folder has a checkpoint of committed entries.
        more: number of additional entries in the log.

    Returns:
        The foreign entries.
    """
    group_id, log = drawn_id(rng.random), MemoryLog()
    for header in node.log.headers[: len(node.log.headers) + min(more, 0)]:
        if header.term > log.end_term:
            # The size differs from that of the other group's entry only where that entry is no opening record.
            log.open_term(Opening(header.term, group_id, drawn_id(rng.random)), rng.randint(0, 10**12))
        else:
            log.add(header.term, _body(rng, header.size - HEADER_SIZE))
    for _ in range(more):
        log.add(max(log.end_term, 1), _body(rng, 30))
    if not log.raw:
        return set()
    if not identified:
        # An older version wrote the folder.
        log = _without_openings(log, rng)
    term = max(node.hard_state.term, log.end_term)
    keep = Keep(group_id if identified else "")
    _put(node, log, HardState(term, None), keep, log.end_index if checkpoint or identified else -1)
    return set(log.raw)


def earlier_life(node: OurNode, rng: Random, committed_index: int, begin_index: int = 0) -> set[bytes]:
    """Give a stopped node a folder of the same identity whose log diverged after a restore.

    Args:
        node: the node.
        rng: random generator.
        committed_index: commit index of the other nodes; the logs diverge before it.
        begin_index: highest begin index of the other nodes' logs; the logs diverge after it.

    Returns:
        The entries that only the diverged log has.
    """
    log = node.log
    last = min(committed_index, log.end_index) - 1
    first = max(log.begin_index, begin_index)
    if not log.raw or last < first:
        return set()
    keep = rng.randint(first, last)
    other = MemoryLog(log.raw[: keep - log.begin_index + 1])
    term = other.end_term
    for _ in range(rng.randint(1, 3)):
        term += rng.randint(1, 2)
        other.open_term(Opening(term, node.keep.group_id, drawn_id(rng.random)), rng.randint(0, 10**12))
        for _ in range(rng.randint(0, 30)):
            other.add(term, _body(rng, rng.randint(10, 100)))
    committed = rng.choice((keep, other.end_index))
    _put(node, other, HardState(max(term, node.hard_state.term), None), node.keep, committed)
    return set(other.raw[keep - log.begin_index + 1 :])


def is_joined(node: OurNode, agreed: dict[int, bytes], strange: set[bytes]) -> bool:
    """Whether a node is a follower, has every committed entry since its log begins, and has no foreign entry."""
    log = node.log
    return (
        node.alive
        and not node.member.halted
        and bool(node.keep.group_id)
        and not node.keep.joining
        and log.end_index >= max(agreed, default=-1)
        and not strange & set(log.raw)
        and all(index < log.begin_index or log.entry(index) == entry for index, entry in agreed.items())
    )


def _without_openings(log: MemoryLog, rng: Random) -> MemoryLog:
    bare = MemoryLog()
    for raw in log.raw:
        header = decode_header(raw)
        bare.add(header.term, _body(rng, header.size - HEADER_SIZE))
    assert not bare.raw or first_of_term(bare, bare.end_index) >= 0
    return bare


def _body(rng: Random, size: int) -> bytes:
    return b"f%d:" % rng.randint(0, 10**9) + bytes(max(size - 11, 1))


def _put(node: OurNode, log: MemoryLog, hard_state: HardState, keep: Keep, checkpoint: int) -> None:
    assert not node.alive
    node.log, node.disk = log, list(log.raw)
    node.hard_state, node.keep, node.checkpoint = hard_state, keep, checkpoint
    node.impaired = node.was_impaired = False
    node.doubted_from = NO_DOUBT
    node.replaced = True
