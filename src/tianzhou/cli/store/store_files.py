"""`store`: store folders as files, without a broker."""

from __future__ import annotations

import typer

from tianzhou.cli.store import store_backup, store_check, store_dump, store_transfer

app = typer.Typer(
    help="Store folders, without a broker: dump, check, repair, export, import, backup, restore.",
    epilog="Example: tianzhou store check ./tianzhou-data",
    no_args_is_help=True,
)
store_dump.register(app)
store_check.register(app)
store_transfer.register(app)
store_backup.register(app)
