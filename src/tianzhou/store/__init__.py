"""The store on disk: commit log, consume queues, index, checkpoint, configuration files.

Code that only reads files, such as every Spark task and planner, needs neither the serving store nor the event loop
below it. So these names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tianzhou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tianzhou.store.reader import ColdRead
    from tianzhou.store.results import (
        OF_BROKER,
        OF_CLIENTS,
        AppendPlan,
        GetResult,
        GetStatus,
        NewRecord,
        PutResult,
        PutStatus,
        QueryResult,
        ReadRequest,
        RecordBatch,
    )
    from tianzhou.store.settings import StoreSettings
    from tianzhou.store.store import MessageStore

__all__ = [
    "OF_BROKER",
    "OF_CLIENTS",
    "AppendPlan",
    "ColdRead",
    "GetResult",
    "GetStatus",
    "MessageStore",
    "NewRecord",
    "PutResult",
    "PutStatus",
    "QueryResult",
    "ReadRequest",
    "RecordBatch",
    "StoreSettings",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "reader": "ColdRead",
        "results": "AppendPlan GetResult GetStatus NewRecord OF_BROKER OF_CLIENTS PutResult PutStatus QueryResult "
        "ReadRequest RecordBatch",
        "settings": "StoreSettings",
        "store": "MessageStore",
    },
)
