"""Signatures of requests: the signed content, and the verification of a signature (wire.md §11.1).

The signed content is the values of all header fields in the order of their names, without separators, followed by the
body. The signature is its HMAC-SHA1 with the account's secret. It covers neither the time nor the request code nor the
boundaries of values. A peer that sees a signed request can send it again, or send another request whose values
concatenate to the same text. So use TLS on shared networks. Servers never forward a signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tianzhou._hot import begin_hmac, hmac_text, is_hmac
from tianzhou.access.requests import AccessRequest
from tianzhou.wire.codes import UNSIGNED_UNIQUE_KEY_QUERY_UNTIL

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
CREDENTIALS: Final = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
"""Header fields with the sender's credentials. They are only for the server that receives the request."""
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Mark of a query by unique key. Old clients and all servers before 5.0 exclude it from the signed content."""


def signature(fields: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """Return the signature of a request, without the mark of a query by unique key in the signed content.

    Args:
        fields: header fields of the request; a signature among them is excluded.
        body: body of the request.
        secret_key: secret key of the account.
    """
    return hmac_text(begin_hmac(secret_key), _content(fields, marked=False), body)


def is_signed(request: AccessRequest, secret_key: str) -> bool:
    """Whether a request has the signature of a secret. The comparison takes constant time.

    The signed content may include the mark of a query by unique key, or not. Servers before 5.0 exclude it; later
    servers include it for clients after 4.9.3.
    """
    fields, start = request.fields, begin_hmac(secret_key)
    claimed = fields.get(SIGNATURE, "")
    if is_hmac(start, request.signed or _content(fields, marked=False), request.body, claimed):
        return True
    if UNIQUE_KEY_QUERY not in fields or request.version <= UNSIGNED_UNIQUE_KEY_QUERY_UNTIL:
        return False
    return is_hmac(start, _content(fields, marked=True), request.body, claimed)


def _content(fields: Mapping[str, str], *, marked: bool) -> bytes:
    values = [
        value for name, value in sorted(fields.items()) if name != SIGNATURE and (marked or name != UNIQUE_KEY_QUERY)
    ]
    return "".join(values).encode("utf-8", "replace")
