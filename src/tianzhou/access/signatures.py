"""Signatures of requests: what is signed, and whether a signature is right (wire.md §11.1).

The content is the values of all header fields in the order of their names, without anything between them, and the body
behind them; the signature is its HMAC-SHA1 with the secret of the account. Nothing in it says when it was made, for
which request code, or where one value ends: who can read a signed request can send it again, and other requests whose
values read the same in a row. So requests belong into TLS where others share the network, and no signature is handed
on.
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
"""Header fields that say who asks; they are for the server that was asked alone."""
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Mark of a query by unique key, which old clients and all servers before 5.0 leave out of what is signed."""


def signature(fields: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> str:
    """Signature of a request by the owner of a secret, with the mark of a query by unique key left out.

    Args:
        fields: its header fields; a signature among them does not count.
        body: its body.
        secret_key: the secret.
    """
    return hmac_text(begin_hmac(secret_key), _content(fields, marked=False), body)


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


def _content(fields: Mapping[str, str], *, marked: bool) -> bytes:
    values = [
        value for name, value in sorted(fields.items()) if name != SIGNATURE and (marked or name != UNIQUE_KEY_QUERY)
    ]
    return "".join(values).encode("utf-8", "replace")
