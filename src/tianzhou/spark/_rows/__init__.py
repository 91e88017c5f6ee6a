"""Usual records to Arrow buffers, compiled; and the one place that says whether it is used (docs/adr/0008-rows.md).

What it does not know, and everything where it was not built, `tianzhou.spark.columns` makes with NumPy and Arrow, with
the same results. `TIANZHOU_PURE=1` in the environment forces that.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tianzhou._hot.sources import digest

MODULE: Final = "tianzhou.spark._rows._compiled"


def _choose() -> Any:
    if os.environ.get("TIANZHOU_PURE", "0") not in {"", "0"}:
        return None
    try:
        found, wanted = importlib.import_module(MODULE), digest(Path(__file__).parent)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other way serves
        if isinstance(error, ModuleNotFoundError) and error.name == MODULE:
            return None
        reason = f"cannot be loaded ({error})"
    else:
        if wanted == found.SOURCE:
            return found
        reason = "was built from other sources"
    warnings.warn(
        f"the compiled {MODULE} {reason} and is not used; build it anew with pip install, or remove it",
        UserWarning,
        stacklevel=3,
    )
    return None


_compiled: Any = _choose()

MODE: Final = "pure" if _compiled is None else "compiled"
"""Which way is taken, "compiled" or "pure"."""
fill: Final[Callable[..., tuple[int, list[Any]] | None] | None] = None if _compiled is None else _compiled.fill
"""Makes the buffers of the columns of usual records, see `_compiled.pyx`; None without it."""
NAMES: Final[tuple[str, ...]] = () if _compiled is None else _compiled.NAMES
"""The columns it makes, in the order of its bits."""
