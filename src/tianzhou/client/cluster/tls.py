"""Whether a client speaks TLS, and whom it trusts (wire.md §1.10, client.md §21)."""

from __future__ import annotations

import os
import ssl
from typing import Final, TypeAlias

from tianzhou.errors import ConfigError
from tianzhou.remoting.tls import TlsSettings, client_context, load_tls

ENABLE_ENV: Final = "TIANZHOU_TLS_ENABLE"
"""As RocketMQ's system property `tls.enable`: `true` has every client speak TLS whose option `tls` is None."""
CONFIG_FILE_ENV: Final = "TIANZHOU_TLS_CONFIG_FILE"
"""As RocketMQ's system property `tls.config.file`; by default `/etc/rocketmq/tls.properties`, if it is there."""

Tls: TypeAlias = bool | ssl.SSLContext | TlsSettings | None
"""The option `tls` of clients: None leaves it to the environment, False is plain, see `context_of` for the others."""

_SWITCH: Final = {"": False, "false": False, "true": True}


def context_of(tls: Tls) -> ssl.SSLContext | None:
    """The context a client speaks TLS with; None speaks plain.

    **True is RocketMQ's `tls.enable`, and RocketMQ's rules trust everybody**: without a configuration file that says
    `tls.client.authServer=true` the connection is encrypted, and whoever answers at the address is believed. A
    context or settings that verify do not have that hole. Only a context looks at host names.

    Args:
        tls: True takes the keys of the file that `TIANZHOU_TLS_CONFIG_FILE` names; settings are taken as they are; a
            context too; None asks `TIANZHOU_TLS_ENABLE`; False is plain.

    Raises:
        ConfigError: a file or value cannot be used, or the settings name whom to trust and trust everybody.
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
