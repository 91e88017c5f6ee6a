"""HMAC-SHA1 of requests (wire.md §11.1), by OpenSSL; the compiled twin has it for processors with SHA instructions."""

from __future__ import annotations

import functools
import hashlib
import hmac
from binascii import b2a_base64
from typing import Any, Final

HmacStart = Any
"""State of an HMAC-SHA1 after the secret, of the twin that made it."""
BLOCK: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def hmac_key(secret_key: str) -> bytes:
    """Return the block of 64 bytes that HMAC-SHA1 derives from a secret."""
    key = secret_key.encode("utf-8", "replace")
    return (key if len(key) <= BLOCK else hashlib.sha1(key).digest()).ljust(BLOCK, b"\0")


@functools.lru_cache(1024)
def begin_hmac(secret_key: str) -> HmacStart:
    """Return the state of an HMAC-SHA1 after the secret; `hmac` would start its two hashes for every request.

    Args:
        secret_key: the secret.
    """
    key = hmac_key(secret_key)
    return hashlib.sha1(key.translate(_INNER)), hashlib.sha1(key.translate(_OUTER))


def hmac_text(start: HmacStart, content: bytes, body: bytes | memoryview) -> str:
    """Return the HMAC-SHA1, in base64, of a content followed by a body.

    Args:
        start: state after the secret, see `begin_hmac`.
        content: bytes before the body.
        body: the body.
    """
    return _text(start, content, body).decode()


def is_hmac(start: HmacStart, content: bytes, body: bytes | memoryview, claimed: str) -> bool:
    """Whether a text is the HMAC-SHA1, in base64, of a content followed by a body; compared in constant time.

    Args:
        start: state after the secret, see `begin_hmac`.
        content: bytes before the body.
        body: the body.
        claimed: the signature from the peer.
    """
    return hmac.compare_digest(claimed.encode("utf-8", "replace"), _text(start, content, body))


def _text(start: HmacStart, content: bytes, body: bytes | memoryview) -> bytes:
    inner, outer = start
    hashed, keyed = inner.copy(), outer.copy()
    hashed.update(content)
    hashed.update(body)
    keyed.update(hashed.digest())
    return b2a_base64(keyed.digest(), newline=False)
