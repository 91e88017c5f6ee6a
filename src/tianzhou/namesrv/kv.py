"""The key-value configuration of a name server: namespaces of texts that survive restarts (wire.md §8.6)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tianzhou.errors import ConfigError
from tianzhou.namesrv.files import candidates, replace_text

_log = logging.getLogger(__name__)


class KvConfig:
    """Namespace to key to value, written to a file on every change.

    Args:
        path: the file, in RocketMQ's form `{"configTable":{namespace:{key:value}}}`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file; when it is damaged or gone, its backup. No file at all is an empty table.

        Raises:
            ConfigError: there is a file and neither it nor its backup can be read.
        """
        problems: list[str] = []
        files = candidates(self._path)
        for file, text in files:
            try:
                self._table = _parse(text)
            except ValueError as error:
                problems.append(f"{file}: {error}")
                continue
            if file != self._path:
                _log.warning("KV configuration taken from the backup %s (%s)", file, "; ".join(problems) or "no file")
            return
        if problems:
            raise ConfigError(
                f"KV configuration cannot be read ({'; '.join(problems)}); restore {self._path} or move it away to"
                " start with an empty one"
            )

    def get(self, namespace: str, key: str) -> str | None:
        """A value, None when there is none."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Keys and values of a namespace, None when nothing was ever put there."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            ConfigError: the file cannot be written; the value counts until the server stops.
        """
        self._table.setdefault(namespace, {})[key] = value
        self._save()

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value; nothing happens when there is none.

        Raises:
            ConfigError: as `put`.
        """
        values = self._table.get(namespace)
        if values is not None and key in values:
            del values[key]
            self._save()

    def _save(self) -> None:
        text = json.dumps({"configTable": self._table}, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        replace_text(self._path, text)


def _parse(text: str) -> dict[str, dict[str, str]]:
    found: Any = json.loads(text)
    table = found.get("configTable") if isinstance(found, dict) else None
    if not isinstance(table, dict) or not all(isinstance(values, dict) for values in table.values()):
        raise ValueError('no {"configTable":{namespace:{key:value}}} in it')
    return {
        str(namespace): {str(key): str(value) for key, value in values.items()} for namespace, values in table.items()
    }
