"""A certificate authority for tests of TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tianzhou.remoting.tls import TlsSettings

HERE = ("localhost", "127.0.0.1")


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if "://" in host:
        return x509.UniformResourceIdentifier(host)
    return x509.RFC822Name(host) if "@" in host else x509.DNSName(host)


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
        self.path = folder / f"{name}.pem"
        certificate = self._certificate(self._name, self._key, authority=True)
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _certificate(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        authority: bool = False,
        hosts: Iterable[str] = (),
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if names := [_general_name(host) for host in hosts]:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def sign(self, name: str, key: ec.EllipticCurvePrivateKey, hosts: Iterable[str] = HERE) -> bytes:
        """A certificate for these hosts and this key, PEM."""
        subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
        return self._certificate(subject, key, hosts=hosts).public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, password: str = "", hosts: Iterable[str] = HERE) -> tuple[str, str]:
        """Paths of a certificate for these hosts and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, private = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(self.sign(name, key, hosts))
        locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
        return str(certificate), str(private)


def certified(authority: Authority, name: str = "server", hosts: Iterable[str] = HERE) -> TlsSettings:
    certificate, key = authority.issue(name, hosts=hosts)
    return TlsSettings(test_mode_enable=False, server_cert_path=certificate, server_key_path=key)


def trusting(authority: Authority) -> TlsSettings:
    return TlsSettings(test_mode_enable=False, client_auth_server=True, client_trust_cert_path=str(authority.path))
