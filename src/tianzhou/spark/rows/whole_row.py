"""The whole row of a message as Arrow schema, for code that does not import PySpark, which takes half a second."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_COLUMNS: list[tuple[str, Any]] = [
    ("topic", pa.string()),
    ("brokerName", pa.string()),
    ("queueId", pa.int32()),
    ("queueOffset", pa.int64()),
    ("msgId", pa.string()),
    ("tags", pa.string()),
    ("keys", pa.string()),
    ("body", pa.binary()),
    ("properties", pa.map_(pa.string(), pa.string())),
    ("bornTimestamp", pa.timestamp("us", "UTC")),
    ("storeTimestamp", pa.timestamp("us", "UTC")),
    ("bornHost", pa.string()),
    ("storeHost", pa.string()),
    ("reconsumeTimes", pa.int32()),
    ("sysFlag", pa.int32()),
    ("physicalOffset", pa.int64()),
]

WHOLE_ROW: Final = pa.schema(_COLUMNS)
"""`arrow_schema(row_schema(True, True))`."""
