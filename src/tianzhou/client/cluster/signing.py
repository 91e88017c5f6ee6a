"""Signed requests, for brokers with access control: RocketMQ's ACL (client.md §21).

A producer, consumer or admin that is given `access_key` and `secret_key` signs each of its requests, heartbeats and
one-way ones included. The secret itself never travels.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from tianzhou.errors import ConfigError
from tianzhou.remoting.client import Exchange, RpcHook
from tianzhou.wire.codes import UNSIGNED_UNIQUE_KEY_QUERY_UNTIL

ACCESS_KEY = "AccessKey"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE = "Signature"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_UNSIGNED = frozenset({SIGNATURE, _UNIQUE_KEY_QUERY})
"""Fields that brokers leave out: the signature itself, and what Java's client adds to a query behind its signature."""


def signature(fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    """The signature of a request by the owner of a secret.

    Args:
        fields: its header fields; a signature among them does not count, nor the mark of a query by unique key.
        body: its body.
        secret_key: the secret.
    """
    content = "".join(value for name, value in sorted(fields.items()) if name not in _UNSIGNED)
    digest = hmac.new(secret_key.encode(), content.encode("utf-8", "replace") + body, hashlib.sha1)
    return base64.b64encode(digest.digest()).decode()


def signing(access_key: str | None, secret_key: str | None, security_token: str | None = None) -> RpcHook | None:
    """A hook that signs requests; None when there is nothing to sign with.

    Args:
        access_key: names the account.
        secret_key: the secret that belongs to it.
        security_token: goes along, where a cloud service wants one.

    Raises:
        ConfigError: one of the keys is missing.
    """
    if not (access_key or secret_key or security_token):
        return None
    if not access_key or not secret_key:
        missing = "secret_key" if access_key else "access_key"
        raise ConfigError(f"requests cannot be signed without {missing}; give access_key and secret_key together")
    extra = {ACCESS_KEY: access_key}
    if security_token:
        extra[SECURITY_TOKEN] = security_token
    secret = secret_key

    def sign(exchange: Exchange) -> None:
        request = exchange.request
        fields = {**request.fields, **extra}
        if _UNIQUE_KEY_QUERY in fields:
            # Brokers before 5.0 never count this field. Later ones do, unless the client is as old as this, because
            # it did not sign it either (wire.md §11.1): for this request we are, and both come to the same signature.
            request.version = min(request.version, UNSIGNED_UNIQUE_KEY_QUERY_UNTIL)
        request.fields = fields | {SIGNATURE: signature(fields, bytes(request.body), secret)}

    return sign
