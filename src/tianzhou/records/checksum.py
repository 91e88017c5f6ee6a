"""CRC-32 of records (store.md §0.1), computed by isal when it is installed, in a seventh of zlib's time."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

Octets: TypeAlias = bytes | bytearray | memoryview
"""Types that hold bytes."""

full_crc32: Callable[[Buffer], int]
"""Return the whole CRC-32, 0 to 0xFFFFFFFF."""
try:
    from isal import isal_zlib

    full_crc32 = isal_zlib.crc32
except ImportError:  # pragma: no cover - the extra `fast` is optional
    full_crc32 = zlib.crc32


def crc32(data: Octets) -> int:
    """Return the CRC-32 without its top bit, so it is never negative; 0 for no bytes."""
    return full_crc32(data) & 0x7FFFFFFF
