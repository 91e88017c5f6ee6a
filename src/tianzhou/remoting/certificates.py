"""Certificates of servers and clients, and of the authority that signs them. They pass OpenSSL's `X509_STRICT`.

Python 3.13 sets that flag by default. It requires basic constraints, key usage and key identifiers (RFC 5280). The
caller passes time and keys. Import this module only to make a certificate, because `cryptography` takes 0.1 s to load.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = ec.EllipticCurvePrivateKey
CLOCK_SKEW: Final = dt.timedelta(days=1)
"""Time by which a certificate becomes valid before it is made, for machines whose clocks are late."""


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority that signs certificates.

    Attributes:
        certificate: the authority's certificate.
        key: its private key.
    """

    certificate: x509.Certificate
    key: Key


def make_key() -> Key:
    """Return a new private key, P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def make_authority(name: str, key: Key, now: dt.datetime, days: float) -> Authority:
    """Return an authority with a self-signed certificate.

    Args:
        name: common name of the authority.
        key: private key of the authority.
        now: present time, aware.
        days: validity of the certificate in days.
    """
    subject = _named(name)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _begun(subject, subject, key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def load_authority(certificate: bytes, key: bytes) -> Authority:
    """Return an authority from its certificate and its key, both PEM.

    Raises:
        ValueError: they cannot be read, do not belong together, or the certificate may not sign others.
    """
    found, private = x509.load_pem_x509_certificate(certificate), serialization.load_pem_private_key(key, None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is no key of an elliptic curve")
    if found.public_key() != private.public_key():
        raise ValueError("certificate and key do not belong together")
    try:
        signs = found.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
        found.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound as error:
        raise ValueError(f"the certificate has no extension {error.oid._name}, which Python 3.13 wants") from error
    if not signs:
        raise ValueError("the certificate may sign no other one")
    return Authority(found, private)


def sign(
    authority: Authority, name: str, key: ec.EllipticCurvePublicKey, hosts: Iterable[str], now: dt.datetime, days: float
) -> x509.Certificate:
    """Return a certificate for servers and clients.

    Args:
        authority: the signing authority.
        name: common name of the owner.
        key: public key of the owner.
        hosts: DNS names, IP addresses, URIs and e-mail addresses of the owner.
        now: present time, aware.
        days: validity in days.

    Raises:
        ValueError: a host is not a valid name for a certificate.
    """
    issuer = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = _begun(_named(name), authority.certificate.subject, key, now, days)
    return _for_peers(builder, key, issuer, hosts).sign(authority.key, hashes.SHA256())


def sign_itself(name: str, key: Key, hosts: Iterable[str], now: dt.datetime, days: float) -> x509.Certificate:
    """Return a self-signed certificate, which only peers that have it can verify; arguments as for `sign`."""
    subject, public = _named(name), key.public_key()
    own = x509.SubjectKeyIdentifier.from_public_key(public)
    return _for_peers(_begun(subject, subject, public, now, days), public, own, hosts).sign(key, hashes.SHA256())


def pem_of(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def pem_of_key(key: Key, password: str = "") -> bytes:
    """Return a private key as PEM (PKCS 8), encrypted when there is a password."""
    locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime, days: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _for_peers(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.SubjectKeyIdentifier,
    hosts: Iterable[str],
) -> x509.CertificateBuilder:
    """Add the extensions for both servers and clients, because a broker is both."""
    purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(purposes, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(identifier, critical=False)
    )
    names = [_general_name(host) for host in hosts]
    return builder.add_extension(x509.SubjectAlternativeName(names), critical=False) if names else builder


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if "://" in host:
        return x509.UniformResourceIdentifier(host)
    return x509.RFC822Name(host) if "@" in host else x509.DNSName(host)
