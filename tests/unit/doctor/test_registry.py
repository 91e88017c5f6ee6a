"""The registry of illnesses: names, words, commands that exist, and a test that reads each name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from doctor_table import NOT_MADE

from tianzhou.cli.app import whole_app
from tianzhou.doctor import Finding, Report, Severity
from tianzhou.doctor.findings import worst_first
from tianzhou.doctor.registry import BY_SUBJECT, ILLNESSES

HERE = Path(__file__).parent
SCENARIO = HERE.parents[1] / "scenario" / "test_doctor_of_copies.py"
MADE = "".join(path.read_text(encoding="utf-8") for path in [*HERE.glob("test_*_illnesses.py"), SCENARIO])
BY_VALUE = (HERE / "test_illnesses_by_value.py").read_text(encoding="utf-8")


COMMANDS = typer.main.get_command(whole_app())


def command_of(words: list[str]) -> Any:
    """The command that a line's words call, with all of them used up but its arguments and options."""
    command: Any = COMMANDS
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return command


def test_names_are_unique_and_written_alike() -> None:
    every = [one.name for some in BY_SUBJECT.values() for one in some]
    assert len(every) == len(set(every)) == len(ILLNESSES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in every)


@pytest.mark.parametrize("name", sorted(ILLNESSES))
def test_an_illness_has_a_sentence_and_a_fix(name: str) -> None:
    one = ILLNESSES[name]
    assert one.means.endswith(".")
    assert one.fix
    for text in (one.means, one.fix):
        assert "  " not in text


@pytest.mark.parametrize("name", sorted(set(ILLNESSES) - set(NOT_MADE)))
def test_a_test_makes_each_illness_and_reads_its_name(name: str) -> None:
    assert f'"{name}"' in MADE


@pytest.mark.parametrize("name", sorted(NOT_MADE))
def test_what_no_test_can_make_is_proved_by_values(name: str) -> None:
    assert name in ILLNESSES
    assert f'"{name}"' in BY_VALUE


@pytest.mark.parametrize("name", sorted(name for name, one in ILLNESSES.items() if "tianzhou " in one.fix))
def test_the_commands_of_fixes_exist(name: str) -> None:
    lines = re.findall(r"tianzhou ((?:[a-z]+(?: |$)|--?[a-z-]+(?: |$)|[{A-Z=a-z_}0-9.]+(?: |$))+)", ILLNESSES[name].fix)
    for line in lines:
        words = line.split()
        if words[0] not in COMMANDS.commands:
            continue  # prose about the package
        command = command_of(words)
        options = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("-")} <= options, line


def test_names_of_strangers_in_commands_are_quoted() -> None:
    found = ILLNESSES["topic-unknown"].found("topic x|reboot", topic="x|reboot")
    assert found.message.startswith("Topic x|reboot does not exist")
    assert "tianzhou topic create 'x|reboot' --queues" in found.fix


def test_reports_have_the_worst_first_and_say_whether_all_is_well() -> None:
    note, error = (Finding(str(s), s, "broker a", "m", {}, "f") for s in (Severity.note, Severity.error))
    report = Report("cluster", worst_first([note, error, error]))
    assert report.names == ["error", "note"]
    assert (report.healthy, report.counts()) == (False, {"error": 1, "warning": 0, "note": 1})
    assert Report("cluster", [note]).healthy
    assert not Report("cluster", could_look=False).healthy
    assert report.as_json()["findings"][0] == {
        "name": "error", "severity": "error", "subject": "broker a", "message": "m", "evidence": {}, "fix": "f",
    }  # fmt: skip
