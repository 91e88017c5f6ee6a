"""`completion`: completion of commands, options and their values by a shell, which queries `tianzhou` itself."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import typer

from tianzhou.cli.output import Output, OutputOption, print_json, print_text

VARIABLE: Final = "_TIANZHOU_COMPLETE"
"""Environment variable with which a shell queries completions. One of `_LINES` contains the words."""
_LINES: Final = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")


class Shell(StrEnum):
    """The supported shells."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="Whose script.")],
    output: OutputOption = Output.text,
) -> None:
    """Print the script by which a shell completes commands, options and their values.

    Load it where your shell starts. bash, in ~/.bashrc: eval "$(tianzhou completion bash)". zsh, in ~/.zshrc, behind
    compinit: the same with zsh. fish: tianzhou completion fish > ~/.config/fish/completions/tianzhou.fish

    Example: tianzhou completion bash
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="tianzhou", complete_var=VARIABLE, shell=shell.value)
    if output is Output.json:
        print_json({"shell": shell.value, "script": script})
    else:
        print_text(script)


def words_so_far(environ: Mapping[str, str]) -> list[str]:
    """Return the complete words of the command line that a shell completes, without the program's name.

    Args:
        environ: the environment from the shell.
    """
    line = next((environ[name] for name in _LINES if environ.get(name)), "")
    words = line.split()[1:]
    return words if line[-1:].isspace() else words[:-1]


def answer_shells() -> None:
    """Register the completion for shells."""
    from typer._completion_classes import completion_init

    completion_init()
