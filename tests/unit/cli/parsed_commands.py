"""Command lines of `tianzhou` that are parsed and not run."""

from __future__ import annotations

from typing import Any

import typer

from tianzhou.cli.app import app


def parse(args: list[str]) -> None:
    """Parse a command line of `tianzhou` without running it.

    Raises:
        Exception: there is no such command or option.
    """
    command: Any = typer.main.get_command(app)
    context = command.make_context("tianzhou", list(args))
    while hasattr(command, "resolve_command"):
        name, command, args = command.resolve_command(context, args)
        context = command.make_context(name, list(args), parent=context)
