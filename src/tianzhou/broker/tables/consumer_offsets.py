"""Consumer offsets of each group and queue (broker.md §14, store.md §15.5).

Every offset is the next one to read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from tianzhou.limits import OFFSETS, Bounds
from tianzhou.model import DataVersion, names
from tianzhou.wire.bodies.topics import DATA_VERSION

SEPARATOR = "@"
OFFSETS_PER_YIELD = 256
"""Number of offsets processed between two yields."""
BEHIND = (1 << 63) - 1
"""Value of `ConsumerOffsetTable.smallest` for a queue in which the compared group is behind all others."""


class ConsumerOffsetTable:
    """Committed offsets, pull offsets, and resets that wait for the next pull.

    Args:
        version_step: number of commits between two versions of the table.
        light: whether groups of light queues (`%LMQ%…`) have a table of their own in the file (store.md §15.5).
        bounds: limits in force.

    Attributes:
        light: whether groups of light queues have a table of their own.
        dirty: whether the table changed since the last call of `to_json`.
        on_reset: callback with group, topic and queue when a reset waits for the next pull.
        unlogged: at the leader of a group, the queues by `topic@group` that were committed since the last change entry,
            and whether an offset of them was lowered; None elsewhere.
        forgotten: at the leader of a group, each `topic@group` that was deleted since the last change entry.
        own: at a slave, the queues by `topic@group` that were committed here and not copied from its master; None at a
            master.
    """

    def __init__(self, version_step: int = 500, *, light: bool = False, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._committed_count = self._pulled_count = 0
        self.light = light
        self.version = DataVersion()
        self.dirty = False
        self.on_reset: Callable[[str, str, int], None] = lambda group, topic, queue_id: None
        self.own: dict[str, set[int]] | None = None
        self.unlogged: dict[str, dict[int, bool]] | None = None
        self.forgotten: set[str] = set()
        self._version_step = version_step
        self._commits = 0
        self._committed: dict[str, dict[int, int]] = {}
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        # The keys of all tables, by group and by topic: there may be millions to look through.
        self._topics_of: dict[str, dict[str, None]] = {}
        self._groups_of: dict[str, dict[str, None]] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int, *, bounded: bool = True) -> None:
        """Commit an offset; it may be lower than the present one, because offsets are reset this way.

        Args:
            group: the consumer group.
            topic: the topic.
            queue_id: number of the queue.
            offset: the next one to read.
            now_ms: stamp of the table's version.
            bounded: whether the limit applies; it does not apply to the broker's own offsets.

        Raises:
            LimitExceeded: the queue is new to the table, and there are too many offsets.
        """
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._committed.get(key)
        if queues is None or queue_id not in queues:
            if bounded:
                self._bounds.check(OFFSETS, self._committed_count + 1, f"offset of group {group} in topic {topic}")
            self._committed_count += 1
            if queues is None:
                queues = self._committed[key] = {}
                self._note(key)
        if self.unlogged is not None and queues.get(queue_id) != offset:
            # Skip unchanged offsets, because consumers commit the same offset repeatedly and the log must not grow.
            marks = self.unlogged.setdefault(key, {})
            marks[queue_id] = marks.get(queue_id, False) or offset < queues.get(queue_id, 0)
        queues[queue_id] = offset
        self.dirty = True
        if self.own is not None:
            self.own.setdefault(key, set()).add(queue_id)
        self._commits += 1
        if self._commits % self._version_step == 0:
            self.version = self.version.next(now_ms)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset or that of a waiting reset; None when the group never committed for the queue."""
        key = f"{topic}{SEPARATOR}{group}"
        if self._resets:
            reset = self._resets.get(key, {}).get(queue_id)
            if reset is not None:
                return reset
        queues = self._committed.get(key)
        return None if queues is None else queues.get(queue_id)

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note the next pull offset of a group, in memory only.

        Args:
            group: the consumer group.
            topic: the topic.
            queue_id: number of the queue.
            offset: queue offset that the next pull would begin at.
        """
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._pulled.get(key)
        if queues is None or queue_id not in queues:
            if self._pulled_count >= self._bounds.most(OFFSETS):
                return
            self._pulled_count += 1
            if queues is None:
                queues = self._pulled[key] = {}
                self._note(key)
        queues[queue_id] = offset

    def pull_offsets(self, group: str, topic: str, queue_id: int) -> dict[int, int] | None:
        """Return the mutable pull offsets of the topic's queues; None when the queue has none."""
        queues = self._pulled.get(f"{topic}{SEPARATOR}{group}")
        return None if queues is None or queue_id not in queues else queues

    @property
    def resets(self) -> Mapping[str, Mapping[int, int]]:
        """Resets that wait for a pull, by `topic@group` and queue; read-only."""
        return self._resets

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next pull offset, None when there was no pull since the start."""
        return self._pulled.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def reset(self, group: str, topic: str, queue_id: int, offset: int, now_ms: int, *, bounded: bool = True) -> None:
        """Reset an offset on the broker: the next pull gets it, and commits before that pull are ignored.

        Arguments and errors are those of `commit`.
        """
        self.commit(group, topic, queue_id, offset, now_ms, bounded=bounded)
        self._resets.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset
        self.on_reset(group, topic, queue_id)

    def reset_waits(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of the queue waits for the next pull."""
        return bool(self._resets) and queue_id in self._resets.get(f"{topic}{SEPARATOR}{group}", {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Remove a waiting reset and return its offset; None when no reset waits."""
        if not self._resets:
            return None
        key = f"{topic}{SEPARATOR}{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return offset

    def check_room(self, group: str, queues: Mapping[str, Collection[int]]) -> None:
        """Check that new offsets fit into the limit, before any of them is committed.

        Args:
            group: the group that will own the offsets.
            queues: queue ids by topic.

        Raises:
            LimitExceeded: there would be too many.
        """
        new = sum(len(set(ids) - self.queues(group, topic).keys()) for topic, ids in queues.items())
        if new:
            self._bounds.check(OFFSETS, self._committed_count + new, f"offsets of group {group}")

    def clone(self, source: str, target: str, topic: str | None, now_ms: int) -> Generator[None, None, None]:
        """Copy committed offsets of one topic or all topics to another group; yield to let other requests run.

        Raises:
            LimitExceeded: there would be too many offsets; none was copied.
        """
        topics = [its_topic for its_topic in self.topics_of(source) if topic in (None, "", its_topic)]
        found = {its_topic: dict(self.queues(source, its_topic)) for its_topic in topics}
        self.check_room(target, found)
        for its_topic, queues in found.items():
            for number, (queue_id, offset) in enumerate(queues.items(), 1):
                self.commit(target, its_topic, queue_id, offset, now_ms, bounded=False)
                if number % OFFSETS_PER_YIELD == 0:
                    yield
            yield

    def smallest(
        self, topic: str, *, without: Collection[str], compared_to: str, begin: Callable[[int], int]
    ) -> Generator[None, None, dict[int, int]]:
        """Return the smallest committed offset of all groups by queue (request 308); yield to let other requests run.

        Args:
            topic: the topic.
            without: groups to ignore.
            compared_to: a group to compare; a queue's value is `BEHIND` when this group's offset is smaller than the
                result.
            begin: returns a queue's first offset; commits below it are ignored, because their messages are deleted.
        """
        found: dict[int, int] = {}
        for group in self.groups_of(topic):
            if group not in without:
                for number, (queue_id, offset) in enumerate(list(self.queues(group, topic).items()), 1):
                    if offset >= begin(queue_id):
                        found[queue_id] = min(found.get(queue_id, offset), offset)
                    if number % OFFSETS_PER_YIELD == 0:
                        yield
                yield
        for queue_id, offset in self.queues(compared_to, topic).items():
            if queue_id in found and found[queue_id] > offset:
                found[queue_id] = BEHIND
        return found

    def lower_to_ends(self, end_of: Callable[[str, int], int], now_ms: int) -> Generator[None, None, int]:
        """Lower committed offsets beyond the ends of queues; yield to let other requests run.

        A log may have lost its end, or a slave may have copied its master's table further than the log. Other messages
        will get these offsets, and no group may skip them.

        Args:
            end_of: returns the end offset for topic and queue; 0 when there is no such queue.
            now_ms: stamp of the table's version.

        Returns:
            Number of lowered offsets.
        """
        lowered = looked_at = 0
        for key, queues in list(self._committed.items()):
            topic, group = split_key(key)
            if topic.startswith(names.LMQ_PREFIX):
                continue  # its queues exist only while `enableMultiDispatch` is set
            for queue_id, offset in list(queues.items()):
                looked_at += 1
                if offset > (end := end_of(topic, queue_id)):
                    self.commit(group, topic, queue_id, end, now_ms, bounded=False)
                    lowered += 1
                if looked_at % OFFSETS_PER_YIELD == 0:
                    yield
        return lowered

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Return the committed offsets of a group for a topic, by queue."""
        return self._committed.get(f"{topic}{SEPARATOR}{group}", {})

    def keys(self) -> list[str]:
        """Return each `topic@group` with committed offsets."""
        return list(self._committed)

    def topics_of(self, group: str) -> list[str]:
        """Return the topics for which the group has committed offsets."""
        known = self._committed
        return [topic for topic in self._topics_of.get(group, ()) if f"{topic}{SEPARATOR}{group}" in known]

    def groups_of(self, topic: str) -> list[str]:
        """Return groups with committed offsets for the topic, except keys of broadcast consumers (`G@broadcast`)."""
        known, groups = self._committed, self._groups_of.get(topic, ())
        return [group for group in groups if SEPARATOR not in group and f"{topic}{SEPARATOR}{group}" in known]

    def _note(self, key: str) -> None:
        topic, group = split_key(key)
        self._topics_of.setdefault(group, {})[topic] = None
        self._groups_of.setdefault(topic, {})[group] = None

    def _note_all(self) -> None:
        self._topics_of, self._groups_of = {}, {}
        for key in (*self._committed, *self._pulled):
            self._note(key)

    def positions(self, topic: str) -> dict[str, set[int]]:
        """Return, for each group, the queues of a topic that it committed or pulled since the start."""
        found = {}
        for group in self._groups_of.get(topic, ()):
            key = f"{topic}{SEPARATOR}{group}"
            found[group] = {*self._committed.get(key, ()), *self._pulled.get(key, ())}
        return found

    def forget_topic(self, topic: str) -> None:
        """Drop all offsets of a deleted topic."""
        for group in list(self._groups_of.get(topic, ())):
            self._forget(topic, group)

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a deleted group."""
        for topic in list(self._topics_of.get(group, ())):
            self._forget(topic, group)

    def _forget(self, topic: str, group: str) -> None:
        key = f"{topic}{SEPARATOR}{group}"
        if self.unlogged is not None:
            self.unlogged.pop(key, None)
            self.forgotten.add(key)
        self._committed_count -= len(self._committed.pop(key, ()))
        self._pulled_count -= len(self._pulled.pop(key, ()))
        self._resets.pop(key, None)
        for table, one, other in ((self._topics_of, group, topic), (self._groups_of, topic, group)):
            del table[one][other]
            if not table[one]:
                del table[one]
        self.dirty = True

    def _count(self) -> None:
        self._committed_count = sum(map(len, self._committed.values()))
        self._pulled_count = sum(map(len, self._pulled.values()))

    def to_json(self) -> dict[str, Any]:
        """Return the value for consumerOffset.json (store.md §15.5) without its derived member; clear `dirty`."""
        self.dirty = False
        return self.snapshot()

    def snapshot(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        light = self._light()
        members: dict[str, Any] = {
            "dataVersion": DATA_VERSION.encode(self.version),
            "offsetTable": {
                key: dict(sorted(queues.items())) for key, queues in self._committed.items() if key not in light
            },
        }
        return members | {"lmqOffsetTable": light} if self.light else members

    def lazily(self) -> dict[str, Sequence[tuple[str, Mapping[int, int] | int]]]:
        """Return the tables of `snapshot` without copying the values; read-only."""
        if not self.light:
            return {"offsetTable": list(self._committed.items())}
        light = self._light()
        return {
            "offsetTable": [(key, queues) for key, queues in self._committed.items() if key not in light],
            "lmqOffsetTable": list(light.items()),
        }

    def _light(self) -> dict[str, int]:
        """Return the table of light queues, which holds only groups whose single committed queue is 0."""
        if not self.light:
            return {}
        return {key: queues[0] for key, queues in self._committed.items() if _is_light(key) and [*queues] == [0]}

    def ahead_of(self, value: dict[str, Any]) -> list[tuple[str, str, int, int]]:
        """Return offsets committed at this slave beyond its master's, as group, topic, queue and offset.

        Args:
            value: the master's offset table as JSON values.
        """
        table = value.get("offsetTable") or {}
        found = []
        for key, queues in (self.own or {}).items():
            topic, group = split_key(key)
            at_master = {int(queue): int(offset) for queue, offset in (table.get(key) or {}).items()}
            committed = self._committed.get(key, {})
            found += [
                (group, topic, queue, committed[queue])
                for queue in sorted(queues & committed.keys())
                if committed[queue] > at_master.get(queue, -1)
            ]
        return found

    def take_over(
        self, value: dict[str, Any], before: Mapping[str, Mapping[int, int]] | None = None
    ) -> dict[str, dict[int, int]]:
        """Merge the offsets that a master committed; return them by `topic@group` and queue (broker.md §17.3).

        The larger offset of both counts, so that a master that has lost its last commits moves no group back. A smaller
        one counts when the same master had a larger one before: then a group was reset. Queues that the master does not
        list stay, and so do offsets that were committed here.

        Args:
            value: answer of the master, as JSON values.
            before: result of this method for the previous answer of the same master, in the same start and term.
        """
        former = before or {}
        taken: dict[str, dict[int, int]] = {}
        for key, queues in (value.get("offsetTable") or {}).items():
            found = taken[key] = {int(queue): int(offset) for queue, offset in (queues or {}).items()}
            known, last = self._committed.get(key, {}), former.get(key, {})
            own = self.own.get(key, ()) if self.own else ()
            fresh = {
                queue: offset
                for queue, offset in found.items()
                if queue not in known
                or (
                    (known[queue] != offset and queue not in own)
                    and (offset > known[queue] or last.get(queue, -1) > offset)
                )
            }
            if fresh or key not in self._committed:
                self._committed_count += len(fresh.keys() - known.keys())
                self._committed[key] = {**known, **fresh}
                self._note(key)
                self.dirty = True
        return taken

    def take_logged(
        self,
        larger: Mapping[str, Mapping[int, int]],
        exact: Mapping[str, Mapping[int, int]],
        forgotten: Iterable[str] = (),
    ) -> None:
        """Take offsets over from a change entry of the group's log.

        A larger offset that was committed here stays until the leader has it.

        Args:
            larger: offsets by `topic@group` and queue; the larger of this offset and the table's is stored.
            exact: offsets by `topic@group` and queue that replace the table's.
            forgotten: each `topic@group` to delete first.
        """
        for key in forgotten:
            if key in self._committed:
                self._forget(*split_key(key))
        for found, resets in ((larger, False), (exact, True)):
            for key, queues in found.items():
                if (known := self._committed.get(key)) is None:
                    known = self._committed[key] = {}
                    self._note(key)
                own = self.own.get(key) if self.own else None
                for queue, offset in queues.items():
                    present = known.get(queue)
                    if present is not None and present > offset and not (resets and (not own or queue not in own)):
                        continue
                    if own:
                        own.discard(queue)
                    if present is None:
                        self._committed_count += 1
                    known[queue] = offset
                self.dirty = True

    def keep_only(self, keys: Collection[str]) -> None:
        """Drop the offsets of each `topic@group` that is not in a complete snapshot of the group's tables."""
        for key in [key for key in self._committed if key not in keys]:
            if not (self.own and self.own.get(key)):
                self._forget(*split_key(key))

    def set_waiting(self, resets: Mapping[str, Mapping[int, int]], gone: Iterable[str]) -> None:
        """Set resets that wait for the next pull, by `topic@group` and queue.

        Args:
            resets: waiting resets; they replace the resets of the same key.
            gone: keys whose resets no longer wait.
        """
        for key, queues in resets.items():
            self._resets[key] = dict(queues)
        for key in gone:
            self._resets.pop(key, None)

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of consumerOffset.json or lmqConsumerOffset.json."""
        version = DATA_VERSION.decode(value.get("dataVersion") or {})
        committed = {
            key: {int(queue): int(offset) for queue, offset in (queues or {}).items()}
            for key, queues in (value.get("offsetTable") or {}).items()
        }
        for key, offset in (value.get("lmqOffsetTable") or {}).items():
            committed.setdefault(key, {})[0] = int(offset)
        # A file that raises above is damaged; the caller then loads the previous version of the file.
        self.version, self._committed = version, committed
        self._count()
        self._note_all()


def _is_light(key: str) -> bool:
    return split_key(key)[1].startswith(names.LMQ_PREFIX)


def split_key(key: str) -> tuple[str, str]:
    """Return topic and group of a table key; neither a topic nor a client's group can contain the separator."""
    topic, _, group = key.partition(SEPARATOR)
    return topic, group
