"""Signatures of requests: what is signed, and whether a signature is right (wire.md §11.1).

The content is the values of all header fields in the order of their names, without anything between them, and the body
behind them; the signature is its HMAC-SHA1 with the secret of the account. Nothing in it says when it was made, for
which request code, or where one value ends: who can read a signed request can send it again, and other requests whose
values read the same in a row. So requests belong into TLS where others share the network, and no signature is handed
on.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from binascii import b2a_base64 as _base64
from collections.abc import Mapping
from typing import Final, TypeAlias

from tianzhou.access.requests import AccessRequest
from tianzhou.wire.codes import UNSIGNED_UNIQUE_KEY_QUERY_UNTIL

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
CREDENTIALS: Final = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
"""Header fields that say who asks; they are for the server that was asked alone."""
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Mark of a query by unique key, which old clients and all servers before 5.0 leave out of what is signed."""


HmacStart: TypeAlias = "tuple[hashlib._Hash, hashlib._Hash]"
"""Inner and outer hash of an HMAC-SHA1 with the secret in, to be copied."""
_BLOCK: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def signature(fields: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """Signature of a request by the owner of a secret, with the mark of a query by unique key left out.

    Args:
        fields: its header fields; a signature among them does not count.
        body: its body.
        secret_key: the secret.
    """
    return _base64(_digest(begin_hmac(secret_key), _content(fields, marked=False), body), newline=False).decode()


def is_signed(request: AccessRequest, secret_key: str) -> bool:
    """Whether a request carries the signature of a secret; compared in constant time.

    The mark of a query by unique key may be part of what is signed, or not: servers before 5.0 never count it, later
    ones do for clients after 4.9.3.
    """
    fields, start = request.fields, begin_hmac(secret_key)
    claimed = fields.get(SIGNATURE, "")
    if is_hmac(start, request.signed or _content(fields, marked=False), request.body, claimed):
        return True
    if UNIQUE_KEY_QUERY not in fields or request.version <= UNSIGNED_UNIQUE_KEY_QUERY_UNTIL:
        return False
    return is_hmac(start, _content(fields, marked=True), request.body, claimed)


def is_hmac(start: HmacStart, content: bytes, body: bytes | memoryview, claimed: str) -> bool:
    """Whether a text is the HMAC-SHA1, in base64, of a content and the body behind it; compared in constant time.

    Args:
        start: of the secret, see `begin_hmac`.
        content: what comes before the body.
        body: the body.
        claimed: what the peer says it is.
    """
    return hmac.compare_digest(
        claimed.encode("utf-8", "replace"), _base64(_digest(start, content, body), newline=False)
    )


def _content(fields: Mapping[str, str], *, marked: bool) -> bytes:
    values = [
        value for name, value in sorted(fields.items()) if name != SIGNATURE and (marked or name != UNIQUE_KEY_QUERY)
    ]
    return "".join(values).encode("utf-8", "replace")


def _digest(start: HmacStart, content: bytes, body: bytes | memoryview) -> bytes:
    inner, outer = start
    hashed, keyed = inner.copy(), outer.copy()
    hashed.update(content)
    hashed.update(body)
    keyed.update(hashed.digest())
    return keyed.digest()


@functools.lru_cache(1024)
def begin_hmac(secret_key: str) -> HmacStart:
    """The two hashes of an HMAC-SHA1, the secret already in: `hmac` would begin each of them with every request."""
    key = secret_key.encode("utf-8", "replace")
    key = (key if len(key) <= _BLOCK else hashlib.sha1(key).digest()).ljust(_BLOCK, b"\0")
    return hashlib.sha1(key.translate(_INNER)), hashlib.sha1(key.translate(_OUTER))
