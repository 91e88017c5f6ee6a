"""Sources of the compiled twin, and their digest. A twin built from other sources is rejected."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from typing import Any
from zlib import crc32

FOLDER = Path(__file__).parent
LAYOUT = FOLDER.parent / "records" / "layout.h"
"""The header file that all compiled modules include."""
MODULE = "tianzhou._hot._compiled"


def digest(folder: Path = FOLDER) -> str:
    """Return the digest of `LAYOUT` and both twins' sources in a folder; the compiled twin relies on the pure one."""
    value = 0
    for path in sorted(
        [LAYOUT, *folder.glob("*.py"), *folder.glob("*.px[di]"), *folder.glob("*.pyx"), *folder.glob("*.h")]
    ):
        value = crc32(path.read_bytes(), crc32(path.name.encode(), value))
    return f"{value:08x}"


def compiled(module: str = MODULE, folder: Path = FOLDER) -> Any:
    """Return a compiled module to use; None without one, or when `TIANZHOU_PURE` is neither empty nor 0.

    A module that cannot be loaded, or that was built from other sources than those in its folder, is rejected with a
    warning.
    """
    if os.environ.get("TIANZHOU_PURE", "0") not in {"", "0"}:
        return None
    try:
        found, wanted = importlib.import_module(module), digest(folder)
    except Exception as error:  # noqa: BLE001 - after any error the pure twin works
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            return None
        reason = f"cannot be loaded ({error})"
    else:
        if wanted == found.SOURCE:
            return found
        reason = "was built from other sources"
    warnings.warn(
        f"the compiled {module} {reason} and is not used; rebuild it with pip install, or remove it",
        UserWarning,
        stacklevel=3,
    )
    return None
