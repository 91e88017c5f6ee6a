"""Compressed bodies."""

from __future__ import annotations

import os
import resource
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from tianzhou.errors import ProtocolError
from tianzhou.wire.compression import COMPRESSED, LZ4, ZLIB, ZSTD, compress, decompress

BODY = b"".join(b"line %d of a body that compresses\n" % n for n in range(400))
KINDS = (ZLIB, LZ4, ZSTD)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [1, 5, 9])
def test_round_trip(kind: int, level: int) -> None:
    packed = compress(BODY, kind, level)
    assert len(packed) < len(BODY) // 2
    assert decompress(packed, COMPRESSED | kind, len(BODY)) == BODY
    assert decompress(memoryview(bytearray(packed)), COMPRESSED | kind, 1 << 22) == BODY


def test_formats_are_the_official_ones() -> None:
    assert zlib.decompress(compress(BODY, ZLIB)) == BODY
    assert zlib.decompress(compress(BODY, 0)) == BODY
    assert lz4.frame.decompress(compress(BODY, LZ4)) == BODY
    assert zstandard.decompress(compress(BODY, ZSTD)) == BODY


def test_kind_0_is_zlib() -> None:
    assert decompress(zlib.compress(BODY), COMPRESSED, 1 << 20) == BODY


def test_frames_without_content_size_are_read() -> None:
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(BODY)
    assert decompress(streamed, ZSTD, len(BODY)) == BODY
    assert decompress(lz4.frame.compress(BODY, store_size=False), LZ4, len(BODY)) == BODY


@pytest.mark.parametrize("kind", [0x400, 0x500, 0x600, 0x700])
def test_unknown_kinds_are_named(kind: int) -> None:
    with pytest.raises(ProtocolError, match=f"{kind:#x}"):
        decompress(b"x", COMPRESSED | kind, 100)
    with pytest.raises(ProtocolError, match=f"{kind:#x}"):
        compress(b"x", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_exact(kind: int) -> None:
    packed = compress(BODY, kind)
    with pytest.raises(ProtocolError, match=str(len(BODY) - 1)):
        decompress(packed, kind, len(BODY) - 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [0, 1, 4, 10, 40, -1])
def test_cut_and_damaged_bodies_are_refused(kind: int, cut: int) -> None:
    packed = compress(BODY, kind)
    with pytest.raises(ProtocolError, match="body"):
        decompress(packed[:cut], kind, 1 << 20)
    with pytest.raises(ProtocolError, match="body"):
        decompress(os.urandom(200), kind, 1 << 20)


@pytest.mark.parametrize("kind", [*KINDS, -ZSTD])
def test_bombs_take_no_memory(kind: int) -> None:
    size = 96 << 20
    block = bytes(1 << 20)
    compressor: Any
    parts = []
    if kind == ZLIB:
        compressor = zlib.compressobj()
    elif kind == LZ4:
        compressor = lz4.frame.LZ4FrameCompressor()
        parts = [compressor.begin()]
    elif kind == ZSTD:
        compressor = zstandard.ZstdCompressor().compressobj(size=size)
    else:
        compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    parts += [compressor.compress(block) for _ in range(size >> 20)]
    bomb = b"".join([*parts, compressor.flush()])
    with suppress(OSError):
        # Reset the process's peak, because earlier tests of this process may have used more than the bomb would.
        Path("/proc/self/clear_refs").write_text("5")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolError):
        decompress(bomb, abs(kind), 4 << 20)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 << 10, f"{grown} KiB"
