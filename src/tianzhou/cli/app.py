"""Every command, put together.

The families register their commands on import and import what they run only when they run, so that `--help` waits
for nothing and `tianzhou serve` not for Spark.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Annotated

import typer

from tianzhou import __version__
from tianzhou.cli import (
    access,
    bench,
    config,
    console,
    consume,
    doctor,
    flights,
    groups,
    pipelines,
    plan,
    produce,
    prove,
    servers,
    simulate,
    status,
    topics,
)
from tianzhou.cli.drain import command as drain
from tianzhou.cli.messages import dead_letters, message, offsets
from tianzhou.cli.mqadmin import tianzhou_admin
from tianzhou.cli.store import store_files
from tianzhou.logs import log_to_stderr

app = typer.Typer(
    name="tianzhou",
    help="A message queue that is RocketMQ to everyone who talks to it, and a pipeline into Spark.",
    epilog="Example: tianzhou serve --data ./data   (every command's --help has one)",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    # Plain help and errors: quick to make, and the same in a terminal, a pipe and a log.
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tianzhou {__version__}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log what happens, to stderr.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options every command has."""
    del version
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    if not verbose and context.invoked_subcommand not in servers.NAMES:
        # A client's command ends with an error that says what a lost connection meant for it.
        logging.getLogger("tianzhou.remoting").setLevel(logging.ERROR)


servers.register(app)
status.register(app)
produce.register(app)
consume.register(app)
plan.register(app)
prove.register(app)
drain.register(app)
app.add_typer(doctor.app, name="doctor")
app.add_typer(bench.app, name="bench")
app.add_typer(topics.app, name="topic")
app.add_typer(groups.app, name="group")
app.add_typer(message.app, name="message")
app.add_typer(offsets.app, name="offset")
app.add_typer(dead_letters.app, name="dlq")
app.add_typer(access.users_app, name="users")
app.add_typer(access.acl_app, name="acl")
app.add_typer(config.app, name="config")
app.add_typer(store_files.app, name="store")
app.add_typer(pipelines.app, name="pipeline")
console.register(app)
flights.register(app)
tianzhou_admin.register(app)
simulate.register(app)


def part_for(words: Sequence[str]) -> typer.Typer:
    """The part of the command line that an invocation needs: its command or family, or all of it.

    Making every command out of its signature takes longer than most of them run.

    Args:
        words: what follows the program's name.
    """
    first = next((word for word in words if not word.startswith("-")), None)
    if first is None or {"-h", "--help"} & set(words[: words.index(first)]):
        return app
    part = copy.copy(app)
    part.registered_groups = [group for group in app.registered_groups if group.name == first]
    part.registered_commands = [
        command
        for command in app.registered_commands
        if first == (command.name or (command.callback.__name__.replace("_", "-") if command.callback else None))
    ]
    return part if part.registered_groups or part.registered_commands else app
