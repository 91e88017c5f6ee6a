"""`store backup|restore`: copies of stores and their configuration from running brokers, and their restoration."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tianzhou.cli.output import Output, OutputOption, local_time, print_fields, print_note
from tianzhou.cli.progress import progress
from tianzhou.cli.store.store_folder import PROGRESS_FROM, StoreArgument, open_stores
from tianzhou.errors import ConfigError, Faults

if TYPE_CHECKING:
    from tianzhou.store.offline.backup import Manifest


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(help=backup.__doc__)(backup)
    app.command(help=restore.__doc__)(restore)


def backup(
    folder: StoreArgument,
    to: Annotated[Path, typer.Option(help="Folder of the backup; it must not be there yet.")],
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="The broker's configuration file: it goes along, and accounts it names."),
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(help="An earlier backup on the same disk: what has not changed is shared with it.")
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Copy a store with its tables, accounts and configuration; the broker may run meanwhile.

    Of a --data folder of several brokers (`serve --brokers`) it copies the stores of all. Every message that was
    acknowledged before it began is in it, and no group is further than the log. Its files are for this user alone
    (0600): secrets are among them. TLS keys are not in it.

    Example: tianzhou store backup /var/lib/tianzhou/store -c /etc/tianzhou/broker.conf --to /backup/monday
    """
    from tianzhou import __version__
    from tianzhou.store.offline.backup import back_up

    scans = open_stores(folder)
    roots = [scan.root for scan in scans]
    if config is not None and len(roots) > 1:
        raise ConfigError(
            f"-c {config}: {folder} holds the stores of {len(roots)} brokers, whose configuration is in it and goes"
            f" along; leave -c out, or name one store: {', '.join(map(str, roots))}"
        )
    logs, settings = _named_by(config, roots[0]) if config is not None else ([], {})
    size = sum(scan.log_bytes() for scan in scans)
    with progress("bytes copied", size, worth_it=size > PROGRESS_FROM) as advance:
        found = back_up(
            folder, roots, to,
            logs=logs, settings=settings, previous=previous,
            version=__version__, now_ms=int(time.time() * 1000), advance=advance,
        )  # fmt: skip
    _show(found, {"backup": str(to)}, output)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder of `tianzhou store backup`.")],
    to: Annotated[Path, typer.Option(help="Folder to make: a storePathRootDir, or a --data folder if it was one.")],
    output: OutputOption = Output.text,
) -> None:
    """Make a store of a backup, in an empty or a new folder; every file is compared with its digest.

    Start a broker with the same brokerName on it, or `serve --data` on what was a --data folder: it reads the log as
    after a crash. Configuration files stay in the
    backup, in its folder `settings`.

    Example: tianzhou store restore /backup/monday --to /var/lib/tianzhou/store
    """
    from tianzhou.store.offline.backup import SETTINGS, read_manifest
    from tianzhou.store.offline.backup import restore as make

    size = read_manifest(source).held_bytes
    with progress("bytes copied", size, worth_it=size > PROGRESS_FROM) as advance:
        found = make(source, to, advance=advance)
    _show(found, {"restored": str(to)}, output)
    for name, origin in found.settings.items():
        print_note(f"{source / SETTINGS / name} was {origin}")


def _show(found: Manifest, where: dict[str, str], output: Output) -> None:
    made = local_time(found.made_ms) if output is Output.text else found.made_ms
    counts = {"stores": len(found.stores), "files": len(found.files), "bytes": found.held_bytes}
    counts["settings"] = len(found.settings)
    print_fields({**where, "of": found.source, "made": made, **counts}, output)


def _named_by(config: Path, root: Path) -> tuple[list[Path], dict[str, Path]]:
    """Return the folders of the log, and the broker's files outside of its store, from its configuration.

    Raises:
        ConfigError: the configuration belongs to another store.
    """
    from tianzhou.broker.settings import BrokerSettings
    from tianzhou.cli.conf_files import read_conf
    from tianzhou.remoting.gates.access_control import FOLDER_NAME, plain_file
    from tianzhou.remoting.tls import TlsSettings
    from tianzhou.settings import bind
    from tianzhou.store.settings import StoreSettings

    faults = Faults()
    values = read_conf(config, BrokerSettings, StoreSettings, TlsSettings, faults=faults)
    settings = bind(BrokerSettings, values, source=str(config), faults=faults)
    store = bind(StoreSettings, values, source=str(config), faults=faults)
    faults.check()
    if store.root.resolve() != root.resolve():
        raise ConfigError(
            f"-c {config}: storePathRootDir is {store.root}, and not {root}; name that folder, or its file"
        )
    outside = {config.name: config}
    accounts = plain_file(settings, root / "config")
    users = Path(settings.auth_config_path).expanduser() / "users.json" if settings.auth_config_path else None
    for path in (accounts, users, Path(settings.broker_config_path) if settings.broker_config_path else None):
        if path is not None and path.is_file() and not path.resolve().is_relative_to(root.resolve()):
            outside.setdefault(path.name, path)
    if accounts.name in outside:
        outside |= {
            f"{FOLDER_NAME}/{path.name}": path for path in sorted((accounts.parent / FOLDER_NAME).glob("*.y*ml"))
        }
    return store.plain_log_directories, outside
