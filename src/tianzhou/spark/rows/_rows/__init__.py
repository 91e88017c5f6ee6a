"""Compiled code that makes Arrow buffers of plain records, and the choice whether to use it (docs/adr/0008-rows.md).

`tianzhou.spark.rows.columns` makes the same columns with NumPy and Arrow. It makes all other records, and every record
where the code was not compiled or `TIANZHOU_PURE=1` is set in the environment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tianzhou._hot.sources import compiled

MODULE: Final = "tianzhou.spark.rows._rows._compiled"


_compiled: Any = compiled(MODULE, Path(__file__).parent)

MODE: Final = "pure" if _compiled is None else "compiled"
"""The implementation in use, "compiled" or "pure"."""
fill: Final[Callable[..., tuple[int, list[Any]] | None] | None] = None if _compiled is None else _compiled.fill
"""Makes the buffers of the columns of plain records, see `_compiled.pyx`; None if it was not compiled."""
NAMES: Final[tuple[str, ...]] = () if _compiled is None else _compiled.NAMES
"""The columns that `fill` can make, in the order of its bits."""
