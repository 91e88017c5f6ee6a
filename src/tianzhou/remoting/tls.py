"""TLS on the ports that also speak plain (wire.md §1.10, broker.md §23)."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from tianzhou.access import certificate_accounts
from tianzhou.errors import ConfigError, Faults
from tianzhou.limits import HANDSHAKE_SECONDS
from tianzhou.remoting.handshakes import KeyedContext, first_byte, hardened
from tianzhou.settings import apply, bind, key_of, keyed, parse_properties

HANDSHAKE: Final = b"\x16"
"""First byte of every TLS connection: a handshake record."""
HANDSHAKE_TIMEOUT_S: Final = float(HANDSHAKE_SECONDS.default)
TLS_RECORD_HEAD, MOST_TLS_RECORD = 5, 16_384
"""Bytes of a record's head, whose last two bytes are the record's length; and maximum bytes of a record's content."""
SHUTDOWN_TIMEOUT_S: Final = 2.0
WATCH_S: Final = 0.5

_MODES: Final = ("disabled", "permissive", "enforcing")
_SWITCH: Final = ("", "true", "false")
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}
_NOT_FROM_FILE: Final = frozenset({"tls.server.mode", "tls.enable", "tls.config.file"})
_SELF_SIGNED_DAYS: Final = 3650
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TlsSettings:
    """RocketMQ's `tls.*` keys, of servers and of clients.

    Attributes:
        server_mode: `disabled`, `permissive` (TLS and plain on one port) or `enforcing` (TLS only).
        enable: whether clients use TLS, and brokers towards name servers and other brokers.
        replication_enable: the same for a slave towards its master's HA port, and for a member towards its DLedger
            group, `true` or `false`; empty means the value of `enable`. A key of Tianzhou's own, as RocketMQ's HA port
            has no TLS.
        metrics_enable: whether the metrics page follows `server_mode`; off makes it speak plain, as RocketMQ's does. A
            key of Tianzhou's own.
        config_file: properties file whose keys override these, except mode and enable.
        test_mode_enable: whether to use a self-signed certificate without verification; on when no certificate is
            configured.
        need_client_auth: `none`, `optional` or `require` a client's certificate; verified with `server_auth_client`.
        server_key_path: private key, PEM.
        server_key_password: password of the private key.
        server_cert_path: certificate chain, PEM.
        server_auth_client: whether to verify clients' certificates.
        server_trust_cert_path: certificates that may sign clients' certificates, PEM; empty means the system's.
        account_from: `off`, or the name in a client's verified certificate that is its account, see
            `certificate_accounts.account_of`; a key of Tianzhou's own.
        client_key_path: as the server's; so are the other client keys.
        client_auth_server: whether to verify the server's certificate.
        client_check_host_name: whether to verify also that the certificate is for the host connected to, as RocketMQ's
            client never does; a key of Tianzhou's own.
    """

    server_mode: str = keyed("tls.server.mode", "permissive")
    enable: bool = keyed("tls.enable", default=False)
    replication_enable: str = keyed("tls.replication.enable", "")
    metrics_enable: bool = keyed("tls.metrics.enable", default=True)
    config_file: str = keyed("tls.config.file", "/etc/rocketmq/tls.properties")
    test_mode_enable: bool = keyed("tls.test.mode.enable", default=True)
    need_client_auth: str = keyed("tls.server.need.client.auth", "none")
    server_key_path: str = keyed("tls.server.keyPath", "")
    server_key_password: str = keyed("tls.server.keyPassword", "", secret=True)
    server_cert_path: str = keyed("tls.server.certPath", "")
    server_auth_client: bool = keyed("tls.server.authClient", default=False)
    server_trust_cert_path: str = keyed("tls.server.trustCertPath", "")
    account_from: str = keyed("tls.server.accountFrom", "off")
    client_key_path: str = keyed("tls.client.keyPath", "")
    client_key_password: str = keyed("tls.client.keyPassword", "", secret=True)
    client_cert_path: str = keyed("tls.client.certPath", "")
    client_auth_server: bool = keyed("tls.client.authServer", default=False)
    client_check_host_name: bool = keyed("tls.client.checkHostName", default=True)
    client_trust_cert_path: str = keyed("tls.client.trustCertPath", "")

    def __post_init__(self) -> None:
        for key, value, allowed in (
            ("tls.server.mode", self.server_mode, _MODES),
            ("tls.server.need.client.auth", self.need_client_auth, tuple(_CLIENT_AUTH)),
            ("tls.replication.enable", self.replication_enable, _SWITCH),
        ):
            # RocketMQ treats an unknown mode as permissive: a misspelt `enforcing` would serve plain text.
            if value.lower() not in allowed:
                raise ValueError(f"{key}={value}: expected one of {', '.join(filter(None, allowed))}")
        sources = certificate_accounts.SOURCES
        if self.account_from.lower() not in {"", *map(str.lower, sources)}:
            raise ValueError(f"tls.server.accountFrom={self.account_from}: expected one of {', '.join(sources)}")

    def replicates(self, *, enabled: bool) -> bool:
        """Whether connections to HA ports and to members of a DLedger group use TLS.

        Args:
            enabled: whether the broker's other connections use TLS.
        """
        return self.replication_enable.lower() == "true" if self.replication_enable else enabled

    @property
    def server_identity(self) -> tuple[str, str, str]:
        """Paths of certificate and key, and the password of the key."""
        return self.server_cert_path, self.server_key_path, self.server_key_password

    @property
    def client_identity(self) -> tuple[str, str, str]:
        """Paths of certificate and key, and the password of the key."""
        return self.client_cert_path, self.client_key_path, self.client_key_password


KEYS: Final = frozenset(key_of(field) for field in fields(TlsSettings))


def load_tls(
    values: Mapping[str, str] | None = None, *, source: str = "configuration", faults: Faults | None = None
) -> TlsSettings:
    """Return the TLS settings of these values and of the file that `tls.config.file` names.

    Args:
        values: a configuration; keys other than `tls.*` are ignored.
        source: origin of the values, for errors.
        faults: collects the faults, and faulty values keep their defaults; None raises the faults.

    Raises:
        ConfigError: values are invalid, or the named file cannot be read; names each fault.
    """
    found = Faults.of(faults)
    configured = {key: value for key, value in (values or {}).items() if key in KEYS}
    settings = bind(TlsSettings, configured, source=source, faults=found)
    path = Path(settings.config_file)
    if path.is_file() or settings.config_file != TlsSettings.config_file:
        text = ""
        try:
            text = path.read_text("utf-8", errors="replace")
        except OSError as error:
            found.note(f"{source}: tls.config.file={path}: {error.strerror}; name a file that is there")
        of_file = parse_properties(text, source=str(path), faults=found)
        in_file = {key: value for key, value in of_file.items() if key in KEYS - _NOT_FROM_FILE}
        settings = apply(settings, in_file, source=str(path), faults=found)
        configured |= in_file
    if faults is None:
        found.check()
    derived = {}
    certified = settings.server_cert_path or settings.client_cert_path
    if "tls.test.mode.enable" not in configured and (
        certified or settings.client_trust_cert_path or settings.client_auth_server
    ):
        derived["tls.test.mode.enable"] = "false"
    if "tls.enable" not in configured and settings.server_mode.lower() == "enforcing":
        derived["tls.enable"] = "true"  # an enforcing broker speaks TLS to the name servers, too
    return apply(settings, derived, source=source)


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of a client; `RemotingClient` re-reads changed files for new connections.

    Raises:
        ConfigError: a certificate or key cannot be used.
    """
    files = _Files(settings.client_cert_path, settings.client_key_path, settings.client_trust_cert_path)
    context = latest = _client_context(settings)

    def present() -> ssl.SSLContext:
        nonlocal latest
        latest = files.renewed(lambda: _client_context(settings)) or latest
        return latest

    if not settings.test_mode_enable:
        context.present = present
    return context


def _client_context(settings: TlsSettings) -> KeyedContext:
    context = hardened(KeyedContext(ssl.PROTOCOL_TLS_CLIENT))
    verifies = settings.client_auth_server and not settings.test_mode_enable
    context.check_hostname = verifies and settings.client_check_host_name
    if not verifies:
        context.verify_mode = ssl.CERT_NONE
    else:
        _trust(context, "tls.client.trustCertPath", settings.client_trust_cert_path, ssl.Purpose.SERVER_AUTH)
    if settings.client_cert_path and not settings.test_mode_enable:
        _present(context, "tls.client", settings.client_identity)
    return context


class ServerTls:
    """TLS of a server: which connections use it, and with which certificate. The certificate may change at run time.

    Args:
        settings: see `TlsSettings`.

    Attributes:
        account_of: returns the account of a client's verified certificate, as `getpeercert` describes it; None without
            `tls.server.accountFrom`.

    Raises:
        ConfigError: a configured certificate or key cannot be used, or clients' certificates are required but would not
            be verified.
    """

    def __init__(self, settings: TlsSettings) -> None:
        _check_client_certificates(settings)
        mode = settings.server_mode.lower()
        self._settings = settings
        self.account_of: Callable[[Mapping[str, Any]], str] | None = None
        if settings.account_from.lower() not in certificate_accounts.OFF:
            self.account_of = partial(certificate_accounts.account_of, source=settings.account_from)
        self._context: ssl.SSLContext | None = None
        self._files = _Files(settings.server_cert_path, settings.server_key_path, settings.server_trust_cert_path)
        self.sniffs = mode == "permissive"
        self.offered = mode != "disabled"
        if self.offered and not settings.test_mode_enable:
            self._context = self._build()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if self._context is None:
            # Making a self-signed certificate takes some milliseconds, and most servers never need it.
            self._context = self._build()
        return self._context

    @property
    def for_page(self) -> Self | None:
        """The same for the metrics page; None where the page speaks plain only."""
        return self if self.offered and self._settings.metrics_enable else None

    async def context_for(self, accepted: socket.socket) -> ssl.SSLContext | None:
        """Return the TLS context for a new connection by its peer's first byte; None for a plain connection.

        Args:
            accepted: the non-blocking connection; this call consumes no byte of it.
        """
        if await first_byte(accepted, None) != HANDSHAKE:
            return None
        self.refresh()
        return self.context()

    def refresh(self) -> None:
        """Use new certificates when their files have changed. Certificate and key wait for each other."""
        if not self._settings.test_mode_enable and self.offered:
            self._context = self._files.renewed(self._build) or self._context

    def _build(self) -> ssl.SSLContext:
        settings = self._settings
        context = hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        if settings.test_mode_enable:
            _present_self_signed(context)
            return context
        if not settings.server_cert_path or not settings.server_key_path:
            raise ConfigError(
                "tls.test.mode.enable=false needs tls.server.certPath and tls.server.keyPath; set both, or remove it"
                " and have a self-signed certificate"
            )
        _present(context, "tls.server", settings.server_identity)
        if settings.server_auth_client:
            wanted = _CLIENT_AUTH[settings.need_client_auth.lower()]
            context.verify_mode = wanted if wanted is not ssl.CERT_NONE else ssl.CERT_OPTIONAL
            _trust(context, "tls.server.trustCertPath", settings.server_trust_cert_path, ssl.Purpose.CLIENT_AUTH)
        return context


ContextT = TypeVar("ContextT", bound=ssl.SSLContext)


class _Files:
    """Certificate and key files, with their content at the last use.

    Args:
        paths: paths of the files; empty paths are ignored.
    """

    def __init__(self, *paths: str) -> None:
        self._paths = [path for path in paths if path]
        self._stamps = self._stamped()
        self._digests = self._digested()

    def renewed(self, build: Callable[[], ContextT]) -> ContextT | None:
        """Return a new context if the files' content has changed and is usable; else None.

        A new certificate with the former key is usable, while RocketMQ waits for both to change. A certificate whose
        key has not arrived yet is not usable; the next change tries again.

        Args:
            build: makes the context.
        """
        stamps = self._stamped()
        if stamps == self._stamps:
            return None
        digests = self._digested()
        if None in digests:
            return None  # a missing file is about to be replaced
        self._stamps, before, self._digests = stamps, self._digests, digests
        if digests == before:
            return None
        names = ", ".join(self._paths)
        try:
            context = build()
        except ConfigError as error:
            _log.error("new certificates are not used, the old ones stay in force: %s", error)
            return None
        _log.info("new certificates are in force for new connections: %s", names)
        return context

    def _stamped(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in self._paths]

    def _digested(self) -> list[bytes | None]:
        return [_digest(path) for path in self._paths]


def _check_client_certificates(settings: TlsSettings) -> None:
    """Refuse settings that require clients' certificates but would accept unverified clients.

    RocketMQ's `require` without `authClient` accepts a certificate of any signer. Its test mode accepts clients without
    a certificate. Its permissive port serves plain clients (broker.md §23).

    Raises:
        ConfigError: names the keys to set.
    """
    requires = settings.need_client_auth.lower() == "require"
    named = settings.account_from.lower() not in certificate_accounts.OFF
    mode = settings.server_mode.lower()
    missing = []
    if not settings.server_auth_client:
        missing.append("tls.server.authClient=true")
    if settings.test_mode_enable:
        missing.append("tls.server.certPath and tls.server.keyPath, and tls.test.mode.enable=false")
    if requires and mode != "enforcing":
        missing.append("tls.server.mode=enforcing (optional leaves plain connections as they are)")
    elif mode == "disabled":
        missing.append("tls.server.mode=permissive or enforcing")
    if missing and (requires or named):
        key = "tls.server.need.client.auth=require" if requires else f"tls.server.accountFrom={settings.account_from}"
        raise ConfigError(
            f"{key}: certificates of clients would not be required and verified without {', '.join(missing)}; set"
            " that too, or remove the key"
        )


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _digest(path: str) -> bytes | None:
    """Return the digest of a file's content; None while the file is missing."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).digest()
    except OSError:
        return None


def _present(context: ssl.SSLContext, prefix: str, files: tuple[str, str, str]) -> None:
    certificate, key, password = files
    for name, path in (("certPath", certificate), ("keyPath", key)):
        if path and not Path(path).is_file():
            raise ConfigError(f"{prefix}.{name}={path}: there is no such file; name a PEM file")
    try:
        # A callable: without one, OpenSSL asks the terminal for the password of an encrypted key.
        context.load_cert_chain(certificate, key or None, password=lambda: password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"{prefix}.certPath={certificate}, {prefix}.keyPath={key}: {_words(error)}; both have to be PEM, belong"
            f" together, and {prefix}.keyPassword has to open the key"
        ) from error


def _trust(context: ssl.SSLContext, key: str, path: str, purpose: ssl.Purpose) -> None:
    if not path:
        context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{key}={path}: {_words(error)}; name a PEM file of certificates") from error


def _words(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)


def _present_self_signed(context: ssl.SSLContext) -> None:
    """Load a new self-signed certificate, which no peer can verify, into the context (RocketMQ's test mode)."""
    from tianzhou.remoting import certificates

    key = certificates.make_key()
    now = dt.datetime.now(dt.UTC)
    certificate = certificates.sign_itself("localhost", key, ["localhost"], now, _SELF_SIGNED_DAYS)
    pem = certificates.pem_of(certificate) + certificates.pem_of_key(key)
    import tempfile

    # The ssl module reads files only. Only the owner can read this one, and it is deleted at once.
    with tempfile.NamedTemporaryFile(prefix="tianzhou-", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)
