"""The command line with all its commands.

An invocation imports and builds only its own command or family, because all of them take several times as long as most
commands run. `tianzhou --help` is built from the table in this module. Commands import further modules when they run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from tianzhou import __version__
from tianzhou.cli.output import WatchingCommand
from tianzhou.logs import log_to_stderr

SERVERS: Final = frozenset({"serve", "namesrv", "broker"})
"""Commands that run until they are stopped."""


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command, or a family of commands.

    Attributes:
        module: its module, below `tianzhou.cli`.
        name: name of the family or of the command's function in the module.
        summary: its line in `tianzhou --help`.
        settings: settings of the command's context, in addition to the common ones.
        watches: whether the command has `--watch`.
    """

    module: str
    name: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    watches: bool = False

    def load(self) -> typer.Typer | Callable[..., Any]:
        """Import the command or family."""
        found: typer.Typer | Callable[..., Any] = getattr(import_module(f"tianzhou.cli.{self.module}"), self.name)
        return found


_OTHER_PARSER: Final = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
PARTS: Final[Mapping[str, CommandEntry]] = {
    "serve": CommandEntry("servers", "serve", "Run name server and broker in one process, or several brokers."),
    "namesrv": CommandEntry("servers", "namesrv", "Run a name server with RocketMQ's flags and keys."),
    "broker": CommandEntry("cluster.brokers", "app", "Run a broker with RocketMQ's flags; list and show brokers."),
    "cluster": CommandEntry("cluster.clusters", "app", "Clusters: list."),
    "status": CommandEntry(
        "cluster.status", "status", "Show every broker: version, load, disk, how far behind.", watches=True
    ),
    "doctor": CommandEntry("doctor", "app", "Say what ails a cluster, by which evidence, what to do."),
    "topic": CommandEntry("topics", "app", "Topics: list, describe, create, delete."),
    "group": CommandEntry("groups", "app", "Consumer groups: list, describe, lag, reset."),
    "produce": CommandEntry("produce", "produce", "Send messages to a topic."),
    "consume": CommandEntry("consume", "consume", "Print messages of a topic as they come."),
    "message": CommandEntry("messages.message", "app", "Messages: get one, query by key or time, trace."),
    "offset": CommandEntry("messages.offsets", "app", "Offsets of consumer groups: show, reset, clone."),
    "dlq": CommandEntry("messages.dead_letters", "app", "Dead letters: count, causes, list, show, resend, export."),
    "limit": CommandEntry("cluster.limits", "app", "Limits of senders: set, list, delete."),
    "undelivered": CommandEntry("messages.undeliverable", "app", "Messages that brokers have set aside: list, resend."),
    "users": CommandEntry("access", "users_app", "Users of brokers that check who asks: list, create, …."),
    "acl": CommandEntry("access", "acl_app", "What users may do: list, set, delete."),
    "config": CommandEntry("config", "app", "Settings of running servers: get, set."),
    "store": CommandEntry("store.store_files", "app", "Store folders, without a broker: dump, check, repair, …."),
    "tls": CommandEntry("serving.certificates", "app", "Certificates for TLS: make."),
    "console": CommandEntry("console", "console", "Serve the web console of a cluster."),
    "console-user": CommandEntry("console", "users_app", "Who may log in to the console: list, add, delete."),
    "pipeline": CommandEntry("pipelines", "app", "Ready pipelines over topics, to run or to copy."),
    "plan": CommandEntry("plan.command", "app", "Plan a load: brokers, consumers."),
    "bench": CommandEntry("bench", "app", "Load a cluster and say how fast it was."),
    "drain": CommandEntry("drain.command", "drain", "Have producers leave a broker; say when to stop it."),
    "prove": CommandEntry("prove", "prove", "Prove that a cluster loses nothing."),
    "simulate": CommandEntry("simulate", "simulate", "Run whole clusters in virtual time; check all promises."),
    "flights": CommandEntry("flights", "flights", "Stream real flights into Spark and Parquet, with proof."),
    "admin": CommandEntry(
        "mqadmin.tianzhou_admin",
        "admin",
        "Sub-commands of Apache's mqadmin by their own names.",
        settings=_OTHER_PARSER,
    ),
    "completion": CommandEntry("completion", "completion", "Print what has a shell complete commands and options."),
}


def part_for(words: Sequence[str]) -> typer.Typer:
    """Return the command or family that an invocation needs, or the contents for `--help`.

    Args:
        words: the arguments after the program's name.
    """
    first = next((word for word in words if not word.startswith("-")), None)
    if first is None or first not in PARTS or {"-h", "--help"} & set(words[: words.index(first)]):
        return contents()
    return _made((first,))


@cache
def whole_app() -> typer.Typer:
    """Return all commands and families, imported and built."""
    return _made(PARTS)


def contents() -> typer.Typer:
    """Return the names and summaries of all commands and families. They cannot be called."""
    app = _root()
    for name, part in PARTS.items():
        app.command(name, short_help=part.summary)(_nothing)
    return app


def _made(names: Iterable[str]) -> typer.Typer:
    app = _root()
    for name in names:
        part = PARTS[name]
        loaded = part.load()
        if isinstance(loaded, typer.Typer):
            app.add_typer(loaded, name=name)
        else:
            app.command(
                name, cls=WatchingCommand if part.watches else TyperCommand, context_settings=dict(part.settings)
            )(loaded)
    return app


def _nothing() -> None: ...


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tianzhou {__version__}")
        raise typer.Exit


def _root() -> typer.Typer:
    app = typer.Typer(
        name="tianzhou",
        help="A message queue that is RocketMQ to everyone who talks to it, and a pipeline into Spark.",
        epilog="Example: tianzhou serve --data ./data   (every command's --help has one)",
        no_args_is_help=True,
        add_completion=False,  # two more options in every --help; `tianzhou completion` replaces them
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        # Plain help and errors are fast to build, and equal in a terminal, a pipe and a log.
        rich_markup_mode=None,
    )
    app.callback()(_options)
    return app


def _options(
    context: typer.Context,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log what happens, to stderr.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options every command has."""
    del version
    log_to_stderr(logging.INFO if verbose else logging.WARNING)
    if not verbose and context.invoked_subcommand not in SERVERS:
        # A client command ends with an error that explains the effect of a lost connection, so hide these log lines.
        logging.getLogger("tianzhou.remoting").setLevel(logging.ERROR)
