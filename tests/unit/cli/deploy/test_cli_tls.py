"""`tianzhou tls make`. Its certificates, those of a server and of tests pass `X509_STRICT`, which Python 3.13
requires.
"""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from authority import Authority

from tianzhou.remoting import certificates
from tianzhou.remoting.tls import ServerTls, TlsSettings

NOW = dt.datetime.now(dt.UTC)
Run = Callable[..., tuple[int, str, str]]


def strict(authority: Path) -> ssl.SSLContext:
    """Return a client's context with the defaults of Python 3.13."""
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> tuple[bytes, bytes]:
    """Shake hands in memory; return the certificates that the client and the server have received, DER.

    Raises:
        ssl.SSLError: one end rejects the certificate of the other one.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    of_server, of_client = (end.getpeercert(binary_form=True) for end in ends)
    return of_server or b"", of_client or b""


def serving(certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.mark.parametrize("host", ["mq.example.org", "localhost", "127.0.0.1"])
def test_certificates_of_the_command_are_verified_strictly(tmp_path: Path, run: Run, host: str) -> None:
    page = ["--host", "mq.example.org", "--host", "localhost", "--host", "127.0.0.1"]
    assert run("tls", "make", *page, "--folder", tmp_path)[0] == 0
    assert run("tls", "make", "--name", "alice", "--host", "alice.example.org", "--folder", tmp_path)[0] == 0
    server = serving(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    server.verify_flags |= ssl.VERIFY_X509_STRICT
    client = strict(tmp_path / "ca.pem")
    client.load_cert_chain(tmp_path / "alice.pem", tmp_path / "alice.key")
    assert all(shake_hands(client, server, host))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for|mismatch"):
        shake_hands(client, server, "elsewhere.example.org")
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("*.key")} == {
        "ca.key": 0o600, "server.key": 0o600, "alice.key": 0o600,
    }  # fmt: skip


def test_the_certificate_that_a_server_makes_at_its_start_is_verified_strictly(tmp_path: Path) -> None:
    server = ServerTls(TlsSettings()).context()
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    shown, _ = shake_hands(anybody, server, "localhost")
    (tmp_path / "shown.pem").write_text(ssl.DER_cert_to_PEM_cert(shown))
    shake_hands(strict(tmp_path / "shown.pem"), server, "localhost")


def test_certificates_of_the_tests_are_verified_strictly(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    shake_hands(strict(authority.path), serving(*authority.issue("server")), "127.0.0.1")


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path), Authority(tmp_path, "other")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        shake_hands(strict(ours.path), serving(*other.issue("server")), "localhost")


def test_a_second_certificate_is_of_the_same_authority_and_one_is_replaced_on_demand_only(
    tmp_path: Path, run: Run
) -> None:
    make = ["tls", "make", "--host", "localhost", "--folder", tmp_path]
    _, first, _ = run(*make)
    authority = (tmp_path / "ca.pem").read_bytes()
    assert "a new authority" in first
    before = (tmp_path / "server.pem").read_bytes()
    code, _, error = run(*make)
    assert code != 0
    assert "server.pem is there already; give --replace" in error
    assert (tmp_path / "server.pem").read_bytes() == before
    code, again, _ = run(*make, "--replace", "--days", 30)
    assert (code, "a new authority" in again) == (0, False)
    assert (tmp_path / "ca.pem").read_bytes() == authority
    server = serving(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
    shake_hands(strict(tmp_path / "ca.pem"), server, "localhost")
    assert (tmp_path / "server.pem").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "files", "words"),
    [
        (["--host", "bücher.example"], {}, "give DNS names in ASCII"),
        (["--host", "h", "--name", "ca"], {}, "and not ca"),
        (["--host", "h", "--name", "a/b"], {}, "without a folder"),
        (["--host", "h"], {"ca.pem": "x"}, "ca.key is not; put it beside"),
        (["--host", "h"], {"ca.pem": "x", "ca.key": "y"}, "cannot sign"),
        ([], {}, "--host"),
    ],
)
def test_what_cannot_be_made_is_refused_and_nothing_is_written(
    tmp_path: Path, run: Run, arguments: list[str], files: dict[str, str], words: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code, _, error = run("tls", "make", *arguments, "--folder", tmp_path)
    assert code != 0
    assert words in error
    assert {file.name for file in tmp_path.iterdir()} == set(files)


def test_an_authority_without_key_usage_is_refused(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = certificates.make_key()
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "old")])
    old = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(ValueError, match="no extension keyUsage"):
        certificates.load_authority(certificates.pem_of(old), certificates.pem_of_key(key))
