"""`console`: the web console; `console-user`: the accounts that may log in to it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tianzhou.cli.output import (
    DEFAULT_NAMESRV,
    NamesrvOption,
    Output,
    OutputOption,
    TlsOption,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from tianzhou.cli.process import BEGAN
from tianzhou.cli.serving.server_logs import LogFormat, LogFormatOption, LogLevelOption, set_up_logs
from tianzhou.errors import ConfigError

if TYPE_CHECKING:
    from tianzhou.console.server import ConsoleServer

PASSWORD: Final = "TIANZHOU_PASSWORD"
DATA: Final = Path("tianzhou-console")
HOW_TO_INSTALL: Final = "pip install 'tianzhou[console]'; an image with it is built by --target console"
"""The remedy for a missing package of the extra `console`."""
DataOption = Annotated[Path, typer.Option("--data", help="Folder of the console's accounts and audit log.")]
users_app = typer.Typer(
    help="Who may log in to the console: list, add, delete.",
    epilog="Example: tianzhou console-user add alice --role admin",
    no_args_is_help=True,
)


class RoleOption(StrEnum):
    """The role of an account."""

    viewer = "viewer"
    admin = "admin"


def console(
    host: Annotated[str, typer.Option(help="Address to listen on; anywhere but on loopback one has to log in.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="Port, 0 for any free one.")] = 8080,
    host_name: Annotated[
        list[str] | None, typer.Option("--host-name", help="A name the console is reached by; may be repeated.")
    ] = None,
    data: DataOption = DATA,
    login: Annotated[bool, typer.Option("--login", help="Log in on loopback, too.")] = False,
    idle_minutes: Annotated[float, typer.Option(help="A session nobody uses ends after this time.", min=1)] = 30.0,
    refresh_s: Annotated[float, typer.Option(help="Seconds between two looks at the cluster.", min=0.2)] = 5.0,
    certificate: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate; with --key.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of the certificate.")] = None,
    archive: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Parquet files that SQL reads as the table archive.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="Address or network of a proxy whose X-Forwarded-For is believed; may be repeated.",
        ),
    ] = None,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    tls: TlsOption = None,
    log_format: LogFormatOption = LogFormat.text,
    log_level: LogLevelOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Serve the web console of a cluster.

    Example: tianzhou console -n 127.0.0.1:9876
    """
    from tianzhou.cli.signals import run_server
    from tianzhou.console.settings import ConsoleSettings, check_proxies

    set_up_logs(log_format, log_level)
    server_of = _import_server()
    if (certificate is None) != (key is None):
        raise ConfigError("--certificate and --key go together; give both, or none for plain HTTP")
    settings = ConsoleSettings(
        namesrv, data.expanduser(), host, port, tuple(name.lower() for name in host_name or ()), login, idle_minutes,
        refresh_s=refresh_s,
        certificate=certificate, key=key, archive=archive, tls=tls, trusted_proxies=check_proxies(trusted_proxy or ()),
    )  # fmt: skip

    async def start() -> Callable[[], Awaitable[None]]:
        server = server_of(settings)
        await server.__aenter__()
        if server.console.needs_login and certificate is None:
            print_note("warning: passwords and all that pages show pass in the clear; give --certificate and --key")
        if output is Output.json:
            print_json({"event": "ready", "pid": os.getpid(), "url": server.url})
        else:
            print_line(f"ready: console {server.url} ({time.monotonic() - BEGAN:.2f} s)")

        async def stop() -> None:
            await server.__aexit__(None, None, None)

        return stop

    run_server(start, has_garbage=True)


def _import_server() -> type[ConsoleServer]:
    try:
        from tianzhou.console.server import ConsoleServer
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return ConsoleServer


def _missing(error: ModuleNotFoundError) -> Exception:
    """Return the error for a missing package; the error itself for a module of this package."""
    if (error.name or "").startswith("tianzhou"):
        return error
    return ConfigError(f"the console needs {error.name}: {HOW_TO_INSTALL}")


@users_app.command("list")
def list_users(data: DataOption = DATA, output: OutputOption = Output.text) -> None:
    """List who may log in.

    Example: tianzhou console-user list
    """
    accounts = _import_accounts()
    found = accounts.load_accounts(data.expanduser() / accounts.FILE_NAME)
    print_rows(["name", "role"], [(account.name, account.role.value) for account in found.values()], output)


@users_app.command()
def add(
    name: Annotated[str, typer.Argument(help="The name to log in with.")],
    role: Annotated[RoleOption, typer.Option(help="viewer looks; admin changes things as well.")] = RoleOption.viewer,
    data: DataOption = DATA,
    output: OutputOption = Output.text,
) -> None:
    """Add an account, or give one another password and role; the password is asked for, or in $TIANZHOU_PASSWORD.

    Example: tianzhou console-user add alice --role admin
    """
    accounts = _import_accounts()
    path = data.expanduser() / accounts.FILE_NAME
    found = accounts.load_accounts(path)
    account = accounts.make_account(name, _password(name), accounts.ConsoleRole(role.value))
    accounts.save_accounts(path, {**found, name: account})
    _print_changed(output, f"{name} may log in as {role.value}", name=name, role=role.value)


@users_app.command()
def delete(
    name: Annotated[str, typer.Argument(help="The account.")],
    data: DataOption = DATA,
    output: OutputOption = Output.text,
) -> None:
    """Delete an account; sessions it has end as well.

    Example: tianzhou console-user delete alice
    """
    accounts = _import_accounts()
    path = data.expanduser() / accounts.FILE_NAME
    found = accounts.load_accounts(path)
    if name not in found:
        raise ConfigError(f"no account {name} in {path}; see tianzhou console-user list")
    accounts.save_accounts(path, {other: account for other, account in found.items() if other != name})
    _print_changed(output, f"{name} may not log in any more", name=name, role=None)


def _print_changed(output: Output, text: str, **fields: str | None) -> None:
    if output is Output.json:
        print_json(fields)
    else:
        print_line(text)


def _import_accounts() -> ModuleType:
    try:
        from tianzhou.console import accounts
    except ModuleNotFoundError as error:
        raise _missing(error) from None
    return accounts


def _password(name: str) -> str:
    found = os.environ.get(PASSWORD)
    if found is not None:
        return found
    if not sys.stdin.isatty():
        raise ConfigError(
            f"no password for {name}: set {PASSWORD}, or run the command at a terminal, which asks for it"
        )
    return str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True))
