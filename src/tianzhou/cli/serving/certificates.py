"""`tls`: creation of certificates for servers and clients, with an own authority."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Final

import typer

from tianzhou.cli.output import Output, OutputOption, print_json, print_line
from tianzhou.errors import ConfigError
from tianzhou.file_modes import OWN_ONLY, make_folders, replace_file

CERTIFICATE_MODE: Final = 0o644
AUTHORITY_NAME: Final = "Tianzhou CA"
AUTHORITY_DAYS: Final = 3650
app = typer.Typer(
    help="Certificates for TLS: make.",
    epilog="Example: tianzhou tls make --host mq.example.org --host localhost --host 127.0.0.1",
    no_args_is_help=True,
)


@app.callback()
def _family() -> None:
    """Make a family of the one command."""


@app.command()
def make(
    hosts: Annotated[
        list[str],
        typer.Option("--host", metavar="HOST", help="A name or IP address that others connect to; may be repeated."),
    ],
    name: Annotated[str, typer.Option(help="Common name, and beginning of the names of the files.")] = "server",
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of all files.")] = Path(),
    days: Annotated[int, typer.Option(help="Days for which the certificate is valid.", min=1, max=3650)] = 365,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the certificate and key of this name.")] = False,
    output: OutputOption = Output.text,
) -> None:
    """Make a certificate, signed by the authority in the folder; the first call makes the authority, too.

    ca.pem is for everybody, NAME.pem and NAME.key are for one server or client. ca.key signs the next certificates.

    Example: tianzhou tls make --host mq.example.org --host localhost --host 127.0.0.1
    """
    from tianzhou.remoting import certificates

    if not name or Path(name).name != name or name == "ca":
        raise ConfigError(f"--name={name}: give a name of a file without a folder, and not ca")
    now, home = dt.datetime.now(dt.UTC), folder.expanduser()
    ca, ca_key = home / "ca.pem", home / "ca.key"
    certificate, key_file = home / f"{name}.pem", home / f"{name}.key"
    taken = [path for path in (certificate, key_file) if path.exists()]
    if taken and not replace:
        raise ConfigError(f"{taken[0]} is there already; give --replace to make it anew, or another --name")
    if ca.exists() != ca_key.exists():
        there, missing = (ca, ca_key) if ca.exists() else (ca_key, ca)
        raise ConfigError(f"{there} is there and {missing} is not; put it beside, or choose an empty --folder")
    is_new = not ca.exists()
    try:
        if is_new:
            authority = certificates.make_authority(AUTHORITY_NAME, certificates.make_key(), now, AUTHORITY_DAYS)
        else:
            authority = certificates.load_authority(ca.read_bytes(), ca_key.read_bytes())
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{ca} and {ca_key} cannot sign: {error}; choose an empty --folder for an authority"
        ) from error
    key = certificates.make_key()
    try:
        signed = certificates.sign(authority, name, key.public_key(), hosts, now, days)
    except ValueError as error:
        raise ConfigError(
            f"--host={' --host='.join(hosts)}: {error}; give DNS names in ASCII, or IP addresses"
        ) from error
    make_folders(home)
    if is_new:
        _write(ca_key, certificates.pem_of_key(authority.key), OWN_ONLY)
        _write(ca, certificates.pem_of(authority.certificate), CERTIFICATE_MODE)
    _write(key_file, certificates.pem_of_key(key), OWN_ONLY)
    _write(certificate, certificates.pem_of(signed), CERTIFICATE_MODE)
    if output is Output.json:
        files = {"authority": str(ca), "certificate": str(certificate), "key": str(key_file)}
        print_json({**files, "hosts": hosts, "days": days, "new_authority": is_new})
        return
    if is_new:
        print_line(f"{ca}: a new authority; give it to everybody, and let nobody see {ca_key}")
    print_line(f"{certificate}, {key_file}: for {', '.join(hosts)}, {days} days")


def _write(path: Path, text: bytes, mode: int) -> None:
    """Write a file atomically. The umask may remove permission bits."""
    replace_file(path, text, mode=mode)
