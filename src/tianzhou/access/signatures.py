"""Signatures of requests: what is signed, and whether a signature is right (wire.md §11.1).

The content is the values of all header fields in the order of their names, without anything between them, and the body
behind them; the signature is its HMAC-SHA1 with the secret of the account. Nothing in it says when it was made: who can
read a signed request can send it again, so that requests belong into TLS where others share the network.
"""

from __future__ import annotations

import base64
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


def signature(fields: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """Signature of a request by the owner of a secret, with the mark of a query by unique key left out.

    Args:
        fields: its header fields; a signature among them does not count.
        body: its body.
        secret_key: the secret.
    """
    return base64.b64encode(_digest(fields, body, secret_key, marked=False)).decode()


def is_signed(request: AccessRequest, secret_key: str) -> bool:
    """Whether a request carries the signature of a secret; compared in constant time.

    The mark of a query by unique key may be part of what is signed, or not: servers before 5.0 never count it, later
    ones do for clients after 4.9.3.
    """
    claimed = request.fields.get(SIGNATURE, "").encode("utf-8", "replace")
    if _is(claimed, request, secret_key, marked=False):
        return True
    marked = UNIQUE_KEY_QUERY in request.fields and request.version > UNSIGNED_UNIQUE_KEY_QUERY_UNTIL
    return marked and _is(claimed, request, secret_key, marked=True)


def _is(claimed: bytes, request: AccessRequest, secret_key: str, *, marked: bool) -> bool:
    digest = _digest(request.fields, request.body, secret_key, marked=marked)
    return hmac.compare_digest(claimed, base64.b64encode(digest))


def _digest(fields: Mapping[str, str], body: bytes | memoryview, secret_key: str, *, marked: bool) -> bytes:
    values = [
        value for name, value in sorted(fields.items()) if name != SIGNATURE and (marked or name != UNIQUE_KEY_QUERY)
    ]
    content = b"".join(("".join(values).encode("utf-8", "replace"), body))
    return hmac.digest(secret_key.encode("utf-8", "replace"), content, "sha1")
