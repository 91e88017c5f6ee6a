"""Spark's own logs of an archive as text, and what is to be done next by what they say. Pure.

A checkpoint has `metadata`, and for each micro-batch a file in `offsets` before it is run and one in `commits`
afterwards. The table has a list of each batch's files in `_spark_metadata`; every tenth has the files of all batches
before it as well. What is here was read off Spark 4.3; anything else is an `UnknownForm`, which Spark has to deal with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from tianzhou.errors import ConfigError
from tianzhou.spark.source.offsets import from_json

VERSION: Final = "v1"
COMPACT: Final = ".compact"
COMPACT_EVERY: Final = 10
"""Spark's `spark.sql.streaming.fileSink.log.compactInterval`."""
RETAINED: Final = 100
"""Batches whose logs stay, Spark's `spark.sql.streaming.minBatchesToRetain`."""
COMMITTED: Final = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
"""What a file in `commits` holds."""

CONF: Final[Mapping[str, str]] = {
    "spark.sql.dropDuplicates.deterministicKeyOrder.enabled": "true",
    "spark.sql.function.protobufExtensions.enabled": "false",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "false",
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.join.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.encodingFormat": "unsaferow",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion": "2",
    "spark.sql.streaming.stateStore.rowChecksum.enabled": "false",
    "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled": "true",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
}
"""What Spark 4.3 notes of a session with its defaults where it begins a checkpoint; it warns of each that lacks."""

_HEAD: Final = frozenset({"batchWatermarkMs", "batchTimestampMs", "conf"})
_FILE: Final = frozenset({"path", "size", "isDir", "modificationTime", "blockReplication", "blockSize", "action"})
_BLOCK_SIZE: Final = 32 << 20
"""What Hadoop says of every local file."""
_NAME: Final = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
_SCHEME: Final = re.compile(r"[^/]*:")
_IN_URIS: Final = "/-_.!~*'(),;:$&+=@"


class UnknownForm(Exception):
    """Logs of a form that is not known here."""


# --- where


def only_sparks(path: str) -> bool:
    """Whether a place is one that only Spark can write to, or may take for such a one."""
    return not path or path.startswith("//") or _SCHEME.match(path) is not None


def partition(topic: str, day: str) -> str:
    """The folder of a topic's messages of a day, below the table's.

    Args:
        topic: a name of RocketMQ's; of its characters Hive writes `%` in another way in folders.
        day: as `2026-11-21`.
    """
    return f"topic={topic.replace('%', '%25')}/day={day}"


def uri_of(path: str) -> str:
    """An absolute path as Java writes it in a URI: what is no ASCII stays, unless it is blank or not to be seen."""
    return "file://" + "".join(
        one if not one.isascii() and one.isprintable() else quote(one, safe=_IN_URIS) for one in path
    )


# --- the forms


@dataclass(frozen=True, slots=True)
class Logged:
    """What a file in `offsets` says.

    Attributes:
        offset: of the source, where the batch ends and where it begins.
        conf: settings of the session that began the checkpoint; nearly all of them concern queries with state.
    """

    offset: dict[str, Any]
    conf: Mapping[str, Any] = field(default_factory=lambda: CONF)

    def text(self, now_ms: int) -> str:
        """As the file holds it.

        Args:
            now_ms: when the batch begins, milliseconds since the epoch.
        """
        head = {"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": dict(self.conf)}
        return f"{VERSION}\n{json.dumps(head, separators=(',', ':'))}\n{json.dumps(self.offset)}"


def _lines(text: str) -> list[str]:
    version, *lines = text.split("\n")
    if version != VERSION:
        raise UnknownForm(f"version {version[:20]}")
    return lines


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UnknownForm(str(error)) from error
    if not isinstance(found, dict):
        raise UnknownForm(f"{text[:80]} is no object")
    return found


def logged_of(text: str) -> Logged:
    """What a file in `offsets` says.

    Raises:
        UnknownForm: it has another version, several sources, a source of another kind or keys that are not known.
    """
    lines = _lines(text)
    if len(lines) != 2:
        raise UnknownForm(f"{len(lines) - 1} sources")
    head, offset = map(_object, lines)
    if not head.keys() <= _HEAD or head.get("batchWatermarkMs", 0) != 0 or not isinstance(head.get("conf", {}), dict):
        raise UnknownForm(f"{lines[0][:80]}")
    try:
        from_json(offset)
    except ConfigError as error:
        raise UnknownForm(str(error)) from error
    return Logged(offset, head.get("conf", {}))


def metadata_text(query: str) -> str:
    """What `metadata` holds.

    Args:
        query: the id of the query, a UUID.
    """
    return json.dumps({"id": query}, separators=(",", ":"))


def query_of(text: str) -> str:
    """The id of the query whose checkpoint it is, by its `metadata`.

    Raises:
        UnknownForm: there is none, or more than that.
    """
    found = _object(text)
    if found.keys() != {"id"} or not re.fullmatch(r"[0-9a-fA-F-]{36}", str(found["id"])):
        raise UnknownForm(f"metadata {text[:80]}")
    return str(found["id"])


def file_line(path: str, size: int, modified_ms: int) -> str:
    """A file of the table as a list has it.

    Args:
        path: absolute.
        size: bytes.
        modified_ms: when it was written, milliseconds since the epoch.
    """
    said = {
        "path": uri_of(path),
        "size": size,
        "isDir": False,
        "modificationTime": modified_ms,
        "blockReplication": 1,
        "blockSize": _BLOCK_SIZE,
        "action": "add",
    }
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False)


def list_text(lines: Sequence[str]) -> str:
    """A list of files as a file in `_spark_metadata` holds it.

    Args:
        lines: of `file_line`, or of other lists.
    """
    return "\n".join([VERSION, *lines])


def listed_of(text: str) -> list[str]:
    """The lines of a list of files.

    Raises:
        UnknownForm: it has another version, or does more than add files.
    """
    lines = [line for line in _lines(text) if line]
    for line in lines:
        said = _object(line)
        if said.keys() != _FILE or said["action"] != "add":
            raise UnknownForm(line[:80])
    return lines


# --- what comes next


@dataclass(frozen=True, slots=True)
class Logs:
    """The numbers of the batches that the logs have.

    Attributes:
        offsets: those that were begun.
        commits: those that are done.
        lists: those whose files are in the table; whether the list is one of all before it, too.
    """

    offsets: frozenset[int]
    commits: frozenset[int]
    lists: Mapping[int, bool]


@dataclass(frozen=True, slots=True)
class Step:
    """A batch.

    Attributes:
        number: its number.
        begun: whether it is done again, from where it was begun to where it was to end.
        listed: whether its files are in the table, and only its commit is missing.
    """

    number: int
    begun: bool = False
    listed: bool = False


def number_of(name: str) -> int | None:
    """The batch that a file in `offsets` or `commits` is of; None for other files."""
    return int(name) if _NAME.fullmatch(name) else None


def list_of(name: str) -> tuple[int, bool] | None:
    """The batch that a file in `_spark_metadata` is of, and whether it lists all before it; None for other files."""
    number = number_of(name.removesuffix(COMPACT))
    return None if number is None else (number, name.endswith(COMPACT))


def logs_of(offsets: Collection[str], commits: Collection[str], lists: Collection[str]) -> Logs:
    """What the names of files say.

    Args:
        offsets: in `offsets`.
        commits: in `commits`.
        lists: in `_spark_metadata`.

    Raises:
        UnknownForm: a batch has two lists.
    """
    found = [listed for name in lists if (listed := list_of(name)) is not None]
    if len(dict(found)) != len(found):
        raise UnknownForm("a batch has two lists")
    begun, done = (
        frozenset(one for name in names if (one := number_of(name)) is not None) for names in (offsets, commits)
    )
    return Logs(begun, done, dict(found))


def is_compact(number: int) -> bool:
    """Whether a batch's list has the files of all batches."""
    return (number + 1) % COMPACT_EVERY == 0


def list_name(number: int) -> str:
    """The name of a batch's list."""
    return f"{number}{COMPACT}" if is_compact(number) else str(number)


def lists_before(number: int) -> list[str]:
    """The lists whose files are those of all batches before one with a list of all, in order.

    Args:
        number: of that batch.
    """
    return [list_name(one) for one in range(max(0, number - COMPACT_EVERY), number)]


def next_step(logs: Logs, to: str, checkpoint: str) -> Step:
    """Which batch comes next.

    Args:
        logs: what there is.
        to: the table, for the error.
        checkpoint: the checkpoint, for the error.

    Raises:
        ConfigError: the table has batches that the checkpoint has not begun: it was written with another one, and what
            Spark writes to it under their numbers would be left out.
        UnknownForm: they do not fit together as an archive leaves them.
    """
    begun, done, listed = (max(numbers, default=-1) for numbers in (logs.offsets, logs.commits, logs.lists))
    if listed > begun:
        raise ConfigError(
            f"--to {to}: has files up to batch {listed} of another checkpoint than {checkpoint}, whose last is "
            f"{begun if begun >= 0 else 'none'}; give the one it was written with, or another folder"
        )
    if begun - done not in (0, 1) or listed not in (begun, done):
        raise UnknownForm(f"begun {begun}, done {done}, listed {listed}")
    _check_lists(logs.lists)
    return Step(begun, begun=True, listed=listed == begun) if begun > done else Step(begun + 1)


def _check_lists(lists: Mapping[int, bool]) -> None:
    """See that each tenth list has all, no other has, and none is missing that the next such one needs."""
    if any(compact != is_compact(number) for number, compact in lists.items()):
        raise UnknownForm("another compactInterval")
    first = max((number for number, compact in lists.items() if compact), default=0)
    if any(number not in lists for number in range(first, max(lists, default=-1) + 1)):
        raise UnknownForm("a list is missing")


def expired(logs: Logs, number: int) -> tuple[list[str], list[str]]:
    """What no run needs any more: names in `offsets` and `commits`, and names in `_spark_metadata`.

    Args:
        logs: what there is.
        number: the last batch that is done.
    """
    oldest = number - RETAINED
    batches = sorted(one for one in logs.offsets | logs.commits if one < oldest)
    whole = max((one for one, compact in logs.lists.items() if compact and one <= oldest), default=0)
    return list(map(str, batches)), [list_name(one) for one in sorted(logs.lists) if one < whole]
