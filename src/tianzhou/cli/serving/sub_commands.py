"""A command that starts a server, and has sub-commands that query running ones."""

from __future__ import annotations

import typer

from tianzhou.errors import ConfigError


def starts(context: typer.Context) -> bool:
    """Whether to start a server. Otherwise a sub-command follows.

    Args:
        context: context of the command that starts a server.

    Raises:
        ConfigError: a sub-command follows an option for the start of a server.
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
