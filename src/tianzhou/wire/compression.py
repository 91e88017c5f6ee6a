"""Compression of message bodies (wire.md §4.4). It rejects bodies that unpack to more than the caller allows.

LZ4 and ZSTD are imported with the first body of their kind. Most programs meet none and start sooner.
"""

from __future__ import annotations

import zlib
from typing import Final

from tianzhou.errors import BodyTooLarge, ProtocolError
from tianzhou.records.checksum import Octets

COMPRESSED: Final = 0x1
KIND_MASK: Final = 0x700
LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300

_NAMES: Final = {0: "ZLIB", LZ4: "LZ4", ZSTD: "ZSTD", ZLIB: "ZLIB"}


def compress(body: Octets, kind: int = ZLIB, level: int = 5) -> bytes:
    """Return a compressed body.

    Args:
        body: the bytes to compress.
        kind: ZLIB (RFC 1950), LZ4 (frame format) or ZSTD. The caller adds these bits and COMPRESSED to sysFlag.
        level: 0 to 9, on the scale of RocketMQ's producers. ZSTD and LZ4 use the number as their own level.

    Raises:
        ProtocolError: `kind` is not one of the three.
    """
    if kind in {ZLIB, 0}:
        return zlib.compress(body, level)
    if kind == LZ4:
        import lz4.frame

        packed: bytes = lz4.frame.compress(body, compression_level=level)
        return packed
    if kind == ZSTD:
        import zstandard

        return zstandard.ZstdCompressor(level=level).compress(body)
    raise ProtocolError(f"compression kind {kind:#x} is not LZ4 0x100, ZSTD 0x200 or ZLIB 0x300")


def pack_body(body: bytes, threshold: int, kind: int, level: int) -> tuple[bytes, int]:
    """Return a body as it is sent, and the sysFlag bits of its compression (client.md §6.2).

    Args:
        body: the message's body.
        threshold: minimum size in bytes of a body to compress.
        kind: ZLIB, LZ4 or ZSTD.
        level: 0 to 9.

    Returns:
        The compressed body when it is smaller than the original; otherwise the original body and 0.
    """
    if len(body) < threshold:
        return body, 0
    packed = compress(body, kind, level)
    return (packed, COMPRESSED | kind & KIND_MASK) if len(packed) < len(body) else (body, 0)


def decompress(body: Octets, sys_flag: int, limit_bytes: int) -> bytes:
    """Unpack a body by the kind bits of `sys_flag`; 0 means ZLIB, as old clients send it.

    It never produces output beyond `limit_bytes`, so a small body cannot take much memory.

    Raises:
        BodyTooLarge: the body unpacks to more than `limit_bytes`.
        ProtocolError: the kind is unknown, or the data is damaged or truncated.
    """
    kind = sys_flag & KIND_MASK
    if kind not in _NAMES:
        raise ProtocolError(f"sysFlag {sys_flag:#x}: there is no compression kind {kind:#x}")
    if kind == ZSTD:
        return _unzstd(body, limit_bytes)
    try:
        if kind == LZ4:
            unpacked, ended = _unlz4(body, limit_bytes + 1)
        else:
            inflater = zlib.decompressobj()
            unpacked = inflater.decompress(body, limit_bytes + 1)
            ended = inflater.eof
    except (zlib.error, RuntimeError) as error:
        raise _damaged(kind, body, limit_bytes, error) from error
    if len(unpacked) > limit_bytes:
        del unpacked  # a traceback of the error would retain the bytes
        raise BodyTooLarge(f"{_NAMES[kind]} body unpacks to more than the limit of {limit_bytes} bytes")
    if not ended:
        raise ProtocolError(f"{_NAMES[kind]} body of {len(body)} bytes ends before its stream does")
    return unpacked


def _damaged(kind: int, body: Octets, limit_bytes: int, error: Exception) -> ProtocolError:
    return ProtocolError(
        f"{_NAMES[kind]} body of {len(body)} bytes is damaged or unpacks to over {limit_bytes}: {error}"
    )


def _unlz4(body: Octets, max_length: int) -> tuple[bytes, bool]:
    import lz4.frame

    decoder = lz4.frame.LZ4FrameDecompressor()
    unpacked: bytes = decoder.decompress(body, max_length)
    return unpacked, bool(decoder.eof)


def _unzstd(body: Octets, limit_bytes: int) -> bytes:
    import zstandard

    # The decoder allocates the size that the frame declares, so check that size first. A frame without a declared size
    # (Java streams them) is unpacked into a buffer of `limit_bytes`; the system backs only the written part with
    # memory.
    try:
        declared = zstandard.frame_content_size(body)
        if declared > limit_bytes:
            raise BodyTooLarge(f"ZSTD body declares {declared} bytes, more than the limit of {limit_bytes}")
        # A decompressor serves one thread at a time, so each call creates its own (10 us).
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=limit_bytes)
    except (RuntimeError, zstandard.ZstdError) as error:
        raise _damaged(ZSTD, body, limit_bytes, error) from error
