"""KV configuration of a name server: namespaces of texts that are stored on disk (wire.md §8.6)."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any

from tianzhou.damaged_files import ACCEPT_OPTION, blank, end_acceptance, is_lost_state_accepted, keep_aside
from tianzhou.errors import ConfigError
from tianzhou.limits import KV_BYTES, KV_ENTRIES, KV_VALUE, Bounds
from tianzhou.namesrv.files import RewrittenFile, candidates

_log = logging.getLogger(__name__)


class KvConfig:
    """A table of namespaces, keys and values, stored in a file. Simultaneous changes share one write.

    Args:
        path: path of the file, which has RocketMQ's format `{"configTable":{namespace:{key:value}}}`.
        bounds: limits of the number of entries and of bytes.
    """

    def __init__(self, path: Path, bounds: Bounds | None = None) -> None:
        self._path = path
        self._bounds = bounds or Bounds()
        self._entries = self._size = 0
        self._table: dict[str, dict[str, str]] = {}
        self._file = RewrittenFile(path, self._text)

    def load(self) -> None:
        """Read the file, or its backup when the file is damaged or missing. Without both, start with an empty table.

        Raises:
            ConfigError: the file exists, and neither the file nor its backup can be read. An operator can accept the
                loss (`accept_lost_state`).
        """
        problems: list[str] = []
        damaged: list[Path] = []
        for file, text in candidates(self._path):
            try:
                self._table = _parse(text)
            except (ValueError, RecursionError) as error:
                problems.append(f"{file}: {error}")
                damaged.append(file)
                continue
            self._entries = len(self._table) + sum(map(len, self._table.values()))
            self._size = sum(
                _size(namespace) + sum(_size(key, value) for key, value in values.items())
                for namespace, values in self._table.items()
            )
            if file != self._path:
                aside = keep_aside(self._path) if problems else None
                where = f"; the damaged file is saved as {aside.name}" if aside is not None else ""
                why = "; ".join(problems) or "no file"
                _log.error("KV configuration taken from the backup %s (%s)%s", file, why, where)
            end_acceptance(self._path.parent)
            return
        if problems:
            self._begin_anew(problems, damaged)
        end_acceptance(self._path.parent)

    def _begin_anew(self, problems: list[str], damaged: list[Path]) -> None:
        """Start with an empty table, if an operator has accepted the loss.

        Raises:
            ConfigError: no operator has accepted the loss.
        """
        backup = self._path.with_name(self._path.name + ".bak")
        problems += [f"{file}: there is no such file" for file in (self._path, backup) if file not in damaged]
        why = "; ".join(problems)
        if not is_lost_state_accepted(self._path.parent):
            raise ConfigError(
                f"KV configuration cannot be read ({why}); put back a copy of {self._path}, or start once with "
                f"{ACCEPT_OPTION}: the name server then begins without order topics and other keys, and keeps the "
                "damaged files under other names"
            )
        names = ", ".join(aside.name for file in damaged if (aside := keep_aside(file)) is not None)
        _log.error(
            "KV configuration is lost and begins empty (%s); the damaged files are %s; set its keys again (order "
            "topics: ORDER_TOPIC_CONFIG)", why, names,
        )  # fmt: skip

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value; None when there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return the keys and values of a namespace; None when no value was ever set there."""
        return self._table.get(namespace)

    def short(self, namespace: str, key: str) -> str | None:
        """Return a value as `get` does, but None when the value exceeds its limit, as a value from a file may."""
        value = self.get(namespace, key)
        return None if value is None or not self._bounds.allows(KV_VALUE, _size(value)) else value

    def short_namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return a namespace as `namespace` does, but None when it exceeds the limit of all entries."""
        values = self.namespace(namespace)
        if values is None:
            return None
        size = sum(_size(key, value) for key, value in values.items()) if self._size > KV_BYTES.default else 0
        return values if self._bounds.allows(KV_BYTES, size) else None

    def put(self, namespace: str, key: str, value: str) -> Awaitable[None]:
        """Set a value. It is valid at once.

        Returns:
            A future that completes when the value is on disk. It raises ConfigError when the file cannot be written;
            the value is then valid until the server stops.

        Raises:
            LimitExceeded: the value is too long, or there are too many entries; nothing was changed.
        """
        values = self._table.get(namespace)
        before = None if values is None else values.get(key)
        entries = self._entries + (values is None) + (before is None)
        size = self._size + _size(key, value) + (_size(namespace) if values is None else 0)
        size -= 0 if before is None else _size(key, before)
        where = f"KV configuration {namespace}/{key}"
        self._bounds.check(KV_VALUE, _size(value), where)
        if entries > self._entries:
            self._bounds.check(KV_ENTRIES, entries, where)
        if size > self._size:
            self._bounds.check(KV_BYTES, size, where)
        self._entries, self._size = entries, size
        self._table.setdefault(namespace, {})[key] = value
        return self._file.changed()

    def delete(self, namespace: str, key: str) -> Awaitable[None]:
        """Delete a value. Deleting a missing value has no effect.

        Returns:
            A future, as `put` returns it.
        """
        values = self._table.get(namespace)
        if values is not None and key in values:
            self._entries -= 1
            self._size -= _size(key, values.pop(key))
            return self._file.changed()
        return self._file.settled()

    async def close(self) -> None:
        """Wait until all changes are on disk or have failed."""
        with contextlib.suppress(ConfigError):
            await self._file.settled()

    def _text(self) -> str:
        return json.dumps({"configTable": self._table}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _size(*texts: str) -> int:
    """Return the size of texts in bytes, as encoded in a reply or the file."""
    return sum(len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) for text in texts)


def _parse(text: str | None) -> dict[str, dict[str, str]]:
    if text is None:
        raise ValueError("the disk cannot read it")
    if problem := blank(text.encode(errors="surrogateescape")):
        raise ValueError(problem)
    found: Any = json.loads(text)
    table = found.get("configTable") if isinstance(found, dict) else None
    if not isinstance(table, dict) or not all(isinstance(values, dict) for values in table.values()):
        raise ValueError('no {"configTable":{namespace:{key:value}}} in it')
    return {
        str(namespace): {str(key): str(value) for key, value in values.items()} for namespace, values in table.items()
    }
