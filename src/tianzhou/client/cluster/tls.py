"""TLS of clients: whether a client uses TLS, and which servers it trusts (wire.md §1.10, client.md §21)."""

from __future__ import annotations

import os
import ssl
from typing import Final, TypeAlias

from tianzhou.errors import ConfigError
from tianzhou.remoting.tls import TlsSettings, client_context, load_tls

ENABLE_ENV: Final = "TIANZHOU_TLS_ENABLE"
"""As RocketMQ's system property `tls.enable`: with `true`, every client whose option `tls` is None uses TLS."""
CONFIG_FILE_ENV: Final = "TIANZHOU_TLS_CONFIG_FILE"
"""As RocketMQ's system property `tls.config.file`; by default `/etc/rocketmq/tls.properties`, if that file exists."""

Tls: TypeAlias = bool | ssl.SSLContext | TlsSettings | None
"""The option `tls` of clients: None uses the environment variables, False disables TLS, see `context_of`."""

_SWITCH: Final = {"": False, "false": False, "true": True}


def context_of(tls: Tls) -> ssl.SSLContext | None:
    """Return the TLS context of a client; None without TLS.

    **True is RocketMQ's `tls.enable`, and RocketMQ's rules trust every server**: without a configuration file with
    `tls.client.authServer=true`, the connection is encrypted, but any server at the address is trusted. A context, or
    settings that verify, do not have this hole. Only a context checks host names.

    Args:
        tls: True uses the file that `TIANZHOU_TLS_CONFIG_FILE` names; settings and contexts are used as they are; None
            uses `TIANZHOU_TLS_ENABLE`; False disables TLS.

    Raises:
        ConfigError: a file or value cannot be used, or the settings name trusted certificates and trust every server.
    """
    if tls is None:
        tls = _switched()
    if tls is False:
        return None
    if isinstance(tls, ssl.SSLContext):
        return tls
    if tls is True:
        file = os.environ.get(CONFIG_FILE_ENV, "")
        tls = load_tls({"tls.config.file": file} if file else {}, source=CONFIG_FILE_ENV if file else "tls=True")
    elif not isinstance(tls, TlsSettings):
        raise ConfigError(f"tls={tls!r}: expected True, False, an ssl.SSLContext or TlsSettings")
    elif tls.test_mode_enable and (tls.client_auth_server or tls.client_trust_cert_path or tls.client_cert_path):
        raise ConfigError(
            "tls: test_mode_enable trusts everybody and shows no certificate, whatever else the settings say; set it"
            " to False with client_auth_server, client_trust_cert_path or client_cert_path"
        )
    return client_context(tls)


def _switched() -> bool:
    text = os.environ.get(ENABLE_ENV, "")
    try:
        return _SWITCH[text.strip().lower()]
    except KeyError:
        raise ConfigError(f"{ENABLE_ENV}={text}: expected true or false") from None
