"""Signed requests, for servers with access control: RocketMQ's ACL (client.md §21).

A producer, consumer or admin with `access_key` and `secret_key` signs each of its requests, also heartbeats and one-way
requests. The secret itself is never sent.
"""

from __future__ import annotations

from tianzhou.access.signatures import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, UNIQUE_KEY_QUERY, signature
from tianzhou.errors import ConfigError
from tianzhou.remoting.client import Exchange, RpcHook
from tianzhou.wire.codes import UNSIGNED_UNIQUE_KEY_QUERY_UNTIL


def signing(access_key: str | None, secret_key: str | None, security_token: str | None = None) -> RpcHook | None:
    """Return a hook that signs requests; None without keys.

    Args:
        access_key: name of the account.
        secret_key: secret of the account.
        security_token: token that some cloud services require; sent with each request.

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
        if UNIQUE_KEY_QUERY in fields:
            # Brokers before 5.0 never count this field. Later ones do, unless the client is as old as this, because
            # it did not sign it either (wire.md §11.1): for this request we are, and both come to the same signature.
            request.version = min(request.version, UNSIGNED_UNIQUE_KEY_QUERY_UNTIL)
        request.fields = fields | {SIGNATURE: signature(fields, request.body, secret)}

    return sign
