"""A certificate authority for tests of TLS."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from tianzhou.remoting import certificates
from tianzhou.remoting.tls import TlsSettings

HERE = ("localhost", "127.0.0.1")
DAYS = 1.0


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._authority = certificates.make_authority(name, certificates.make_key(), dt.datetime.now(dt.UTC), DAYS)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(certificates.pem_of(self._authority.certificate))

    def sign(self, name: str, key: ec.EllipticCurvePrivateKey, hosts: Iterable[str] = HERE) -> bytes:
        """A certificate for these hosts and this key, PEM."""
        now = dt.datetime.now(dt.UTC)
        return certificates.pem_of(certificates.sign(self._authority, name, key.public_key(), hosts, now, DAYS))

    def issue(self, name: str, password: str = "", hosts: Iterable[str] = HERE) -> tuple[str, str]:
        """Paths of a certificate for these hosts and its key."""
        key = certificates.make_key()
        certificate, private = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(self.sign(name, key, hosts))
        private.write_bytes(certificates.pem_of_key(key, password))
        return str(certificate), str(private)


def certified(authority: Authority, name: str = "server", hosts: Iterable[str] = HERE) -> TlsSettings:
    certificate, key = authority.issue(name, hosts=hosts)
    return TlsSettings(test_mode_enable=False, server_cert_path=certificate, server_key_path=key)


def trusting(authority: Authority) -> TlsSettings:
    return TlsSettings(test_mode_enable=False, client_auth_server=True, client_trust_cert_path=str(authority.path))
