"""`completion`: a shell completes commands, options and their values, by asking `tianzhou` itself."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import typer

from tianzhou.cli.output import Output, OutputOption, print_json, print_text

VARIABLE: Final = "_TIANZHOU_COMPLETE"
"""Environment variable by which a shell asks what may follow; the words are in one of `_LINES`."""
_LINES: Final = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")


class Shell(StrEnum):
    """Shells that can ask."""

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
    """What stands on the line that a shell asks about, behind the program's name and before what is being written.

    Args:
        environ: the environment that the shell gives.
    """
    line = next((environ[name] for name in _LINES if environ.get(name)), "")
    words = line.split()[1:]
    return words if line[-1:].isspace() else words[:-1]


def answer_shells() -> None:
    """Be ready for shells that ask."""
    from typer._completion_classes import completion_init

    completion_init()
