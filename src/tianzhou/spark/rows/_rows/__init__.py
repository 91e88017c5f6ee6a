"""Plain records to Arrow buffers, compiled; and the one place that says whether it is used (docs/adr/0008-rows.md).

What it does not know, and everything where it was not built, `tianzhou.spark.rows.columns` makes with NumPy and Arrow,
with the same results. `TIANZHOU_PURE=1` in the environment forces that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tianzhou._hot.sources import compiled

MODULE: Final = "tianzhou.spark.rows._rows._compiled"


_compiled: Any = compiled(MODULE, Path(__file__).parent)

MODE: Final = "pure" if _compiled is None else "compiled"
"""Which way is taken, "compiled" or "pure"."""
fill: Final[Callable[..., tuple[int, list[Any]] | None] | None] = None if _compiled is None else _compiled.fill
"""Makes the buffers of the columns of plain records, see `_compiled.pyx`; None without it."""
NAMES: Final[tuple[str, ...]] = () if _compiled is None else _compiled.NAMES
"""The columns it makes, in the order of its bits."""
