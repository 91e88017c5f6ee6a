"""What is on disk: commit log, consume queues, index, checkpoint, configuration files.

What reads files alone, as every task and planner of Spark does, gets by without the store that serves and the event
loop below it; so these names are looked up when they are asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tianzhou.store.results import (
        GetResult,
        GetStatus,
        NewRecord,
        PutResult,
        PutStatus,
        QueryResult,
        ReadRequest,
    )
    from tianzhou.store.settings import StoreSettings
    from tianzhou.store.store import MessageStore

_HOMES: Final = {
    **dict.fromkeys(
        ("GetResult", "GetStatus", "NewRecord", "PutResult", "PutStatus", "QueryResult", "ReadRequest"), "results"
    ),
    "StoreSettings": "settings",
    "MessageStore": "store",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


__all__ = [
    "GetResult",
    "GetStatus",
    "MessageStore",
    "NewRecord",
    "PutResult",
    "PutStatus",
    "QueryResult",
    "ReadRequest",
    "StoreSettings",
]
