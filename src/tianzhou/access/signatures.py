"""Signatures of requests: what is signed, and whether a signature is right (wire.md §11.1).

The content is the values of all header fields in the order of their names, without anything between them, and the body
behind them; the signature is its HMAC-SHA1 with the secret of the account. Nothing in it says when it was made: who can
read a signed request can send it again, so that requests belong into TLS where others share the network.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from tianzhou.access.requests import AccessRequest
from tianzhou.wire.codes import UNSIGNED_UNIQUE_KEY_QUERY_UNTIL

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Mark of a query by unique key, which old clients and all servers before 5.0 leave out of what is signed."""


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
    return base64.b64encode(_digest(_content(fields, marked=False), body, secret_key)).decode()


def is_signed(request: AccessRequest, secret_key: str) -> bool:
    """Whether a request carries the signature of a secret; compared in constant time.

    The mark of a query by unique key may be part of what is signed, or not: servers before 5.0 never count it, later
    ones do for clients after 4.9.3.
    """
    fields = request.fields
    claimed = fields.get(SIGNATURE, "").encode("utf-8", "replace")
    content = request.signed or _content(fields, marked=False)
    if hmac.compare_digest(claimed, base64.b64encode(_digest(content, request.body, secret_key))):
        return True
    if UNIQUE_KEY_QUERY not in fields or request.version <= UNSIGNED_UNIQUE_KEY_QUERY_UNTIL:
        return False
    marked = _digest(_content(fields, marked=True), request.body, secret_key)
    return hmac.compare_digest(claimed, base64.b64encode(marked))


def _content(fields: Mapping[str, str], *, marked: bool) -> bytes:
    values = [
        value for name, value in sorted(fields.items()) if name != SIGNATURE and (marked or name != UNIQUE_KEY_QUERY)
    ]
    return "".join(values).encode("utf-8", "replace")


def _digest(content: bytes, body: bytes | memoryview, secret_key: str) -> bytes:
    inner, outer = _begun(secret_key)
    hashed, keyed = inner.copy(), outer.copy()
    hashed.update(content)
    hashed.update(body)
    keyed.update(hashed.digest())
    return keyed.digest()


@functools.lru_cache(1024)
def _begun(secret_key: str) -> tuple[hashlib._Hash, hashlib._Hash]:
    """The two hashes of an HMAC-SHA1, the secret already in: `hmac` would begin each of them with every request."""
    key = secret_key.encode("utf-8", "replace")
    key = (key if len(key) <= _BLOCK else hashlib.sha1(key).digest()).ljust(_BLOCK, b"\0")
    return hashlib.sha1(key.translate(_INNER)), hashlib.sha1(key.translate(_OUTER))
