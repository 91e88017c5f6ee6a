"""What is on disk: commit log, consume queues, index, checkpoint, configuration files."""

from tianzhou.store.results import (
    GetResult,
    GetStatus,
    NewRecord,
    PutResult,
    PutStatus,
    QueryResult,
)
from tianzhou.store.settings import StoreSettings
from tianzhou.store.store import MessageStore

__all__ = [
    "GetResult",
    "GetStatus",
    "MessageStore",
    "NewRecord",
    "PutResult",
    "PutStatus",
    "QueryResult",
    "StoreSettings",
]
