"""Shell completion: commands, options, values of options."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tianzhou.cli.app import PARTS
from tianzhou.cli.completion import words_so_far

Run = Callable[..., tuple[int, str, str]]


def asked(shell: str, line: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> list[str]:
    """Return the completions for a shell; of zsh and fish the words without their explanations."""
    monkeypatch.setenv("_TIANZHOU_COMPLETE", f"complete_{shell}")
    if shell == "bash":
        words = line.split(" ")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    else:
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    code, out, err = run()
    assert (code, err) == (0, "")
    return [one.partition("\t")[0] for one in out.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tianzhou dl", ["dlq"]),
        ("tianzhou consol", ["console", "console-user"]),
        ("tianzhou console", ["console", "console-user"]),
        ("tianzhou broker ", ["list", "show"]),
        ("tianzhou group la", ["lag"]),
        ("tianzhou topic create orders --per", ["--perm"]),
        ("tianzhou topic create orders --perm r", ["rw", "r"]),
        ("tianzhou completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_commands_options_and_values_are_completed(
    shell: str, line: str, found: list[str], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    assert asked(shell, line, monkeypatch, run) == found


def test_all_commands_are_offered_at_the_beginning(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    assert asked("bash", "tianzhou ", monkeypatch, run) == list(PARTS)


def test_zsh_is_told_what_each_is_for(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("_TIANZHOU_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "tianzhou topic create --per")
    assert '"--perm":"Reading, writing or both."' in run()[1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, run: Run) -> None:
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert f"_TIANZHOU_COMPLETE=complete_{shell}" in out
    assert json.loads(run("completion", shell, "-o", "json")[1]) == {"shell": shell, "script": out.rstrip("\n")}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_itself_completes(tmp_path: Path) -> None:
    command = tmp_path / "tianzhou"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tianzhou.cli.main "$@"\n')
    command.chmod(0o755)
    program = (
        'eval "$(tianzhou completion bash)"; COMP_WORDS=(tianzhou cluster ""); COMP_CWORD=2; '
        '_tianzhou_completion tianzhou; echo "${COMPREPLY[@]}"'
    )
    source = str(Path(__file__).resolve().parents[4] / "src")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": source}
    done = subprocess.run(
        ["bash", "--norc", "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("list\n", "")


def test_an_unknown_shell_is_refused_with_those_there_are(run: Run) -> None:
    code, out, err = run("completion", "tcsh")
    assert (code, out) == (2, "")
    assert "'bash', 'zsh', 'fish'" in err


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({}, []),
        ({"COMP_WORDS": "tianzhou\ntop"}, []),
        ({"COMP_WORDS": "tianzhou\ntopic\n"}, ["topic"]),
        ({"_TYPER_COMPLETE_ARGS": "tianzhou -v topic list --na"}, ["-v", "topic", "list"]),
        ({"_TYPER_COMPLETE_ARGS": "tianzhou"}, []),
    ],
)
def test_the_word_that_is_being_written_is_not_taken(environ: dict[str, str], words: list[str]) -> None:
    assert words_so_far(environ) == words
