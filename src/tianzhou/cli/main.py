"""The `tianzhou` command."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer

from tianzhou import __version__
from tianzhou.cli.output import print_note
from tianzhou.errors import ConfigError, TianzhouError

app = typer.Typer(
    name="tianzhou",
    help="A message queue that is RocketMQ to everyone who talks to it, and a pipeline into Spark.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tianzhou {__version__}")
        raise typer.Exit


@app.callback()
def options(
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log what happens, to stderr.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options every command has."""
    del version
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )


def _load_commands() -> None:
    # Each family registers its commands on import; they import what they run only when they run, so that
    # `tianzhou serve` does not wait for Spark and `--help` waits for nothing.
    from tianzhou.cli import flights, groups, messages, servers, store_files, topics

    servers.register(app)
    messages.register(app)
    app.add_typer(topics.app, name="topic")
    app.add_typer(groups.app, name="group")
    app.add_typer(store_files.app, name="store")
    flights.register(app)


def main() -> None:
    """Run the command line; exit code 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted."""
    _load_commands()
    try:
        app()
    except ConfigError as error:
        print_note(f"tianzhou: {error}")
        sys.exit(EXIT_USAGE)
    except TianzhouError as error:
        print_note(f"tianzhou: {type(error).__name__}: {error}")
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        print_note("interrupted")
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away (`| head`); Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
