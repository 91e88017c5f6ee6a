"""Sources of the compiled twin, and their digest, by which a twin built from other files is refused."""

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
    """Digest of the sources in a folder and of `LAYOUT`: of both twins, since the compiled one relies on the other."""
    value = 0
    for path in sorted(
        [LAYOUT, *folder.glob("*.py"), *folder.glob("*.px[di]"), *folder.glob("*.pyx"), *folder.glob("*.h")]
    ):
        value = crc32(path.read_bytes(), crc32(path.name.encode(), value))
    return f"{value:08x}"


def compiled(module: str = MODULE, folder: Path = FOLDER) -> Any:
    """A compiled module that is to be used; None without one, and when `TIANZHOU_PURE` in the environment says so.

    One that cannot be loaded, or was built from other sources than those in its folder, is not used, with a warning.
    """
    if os.environ.get("TIANZHOU_PURE", "0") not in {"", "0"}:
        return None
    try:
        found, wanted = importlib.import_module(module), digest(folder)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other way serves
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
