"""A command that starts a server, and has others below it that only look."""

from __future__ import annotations

import typer

from tianzhou.errors import ConfigError


def starts(context: typer.Context) -> bool:
    """Whether a server is to be started; otherwise a command follows that looks.

    Args:
        context: of the command that starts one.

    Raises:
        ConfigError: a command follows, and before it stands an option for a server that starts.
    """
    command = context.invoked_subcommand
    if command is None:
        return True
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise ConfigError(
                f"{parameter.opts[-1]} stands before {command}, where it is for a server that starts; "
                f"put it behind: {context.command_path} {command} {parameter.opts[-1]} …"
            )
    return False
