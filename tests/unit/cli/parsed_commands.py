"""Command lines of `tianzhou` that are parsed and not run."""

from __future__ import annotations

from typing import Any

import typer

from tianzhou.cli.app import whole_app


def parse(args: list[str]) -> None:
    """Parse a command line of `tianzhou` without running it.

    Raises:
        Exception: there is no such command or option.
    """
    command: Any = typer.main.get_command(whole_app())
    context = command.make_context("tianzhou", list(args))
    # A command group may run with options only, like `broker`; then no word is left.
    while hasattr(command, "resolve_command") and (left := [*context._protected_args, *context.args]):
        name, command, args = command.resolve_command(context, left)
        context = command.make_context(name, list(args), parent=context)
