"""Answers of Apache's servers, tools and libraries to fixed questions, recorded in `tests/golden/apache`.

A test that compares our answers with Apache's reads the recorded answers. Tests of `./test --slow` send the same
questions to a live Apache and call `is_as_recorded`. This function compares the live answers with the recorded ones, or
replaces the file when the variable `TIANZHOU_RECORD_ANSWERS` is set. Only these tests write the files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "apache"
RECORD = "TIANZHOU_RECORD_ANSWERS"
"""The environment variable that makes the slow tests write the files."""


def file_of(name: str) -> Path:
    """Return the file of a recording."""
    return FOLDER / f"{name}.json"


def recorded(name: str, questions: Iterable[str] = ()) -> Any:
    """Return recorded answers.

    Args:
        name: name of the recording.
        questions: the questions, if the test draws them by chance or from its own list.

    Raises:
        AssertionError: the answers were recorded for other questions.
    """
    found = json.loads(file_of(name).read_text(encoding="utf-8"))
    assert found["questions"] == digest(questions), f"{name} was recorded for other questions: {how_to_record()}"
    return found["answers"]


def plain(answers: Any) -> Any:
    """Return answers as JSON returns them: lists in place of tuples, texts as keys of dictionaries."""
    return json.loads(json.dumps(answers))


def is_as_recorded(name: str, answers: Any, *, source: str, questions: Iterable[str] = ()) -> None:
    """Assert that live answers equal the recorded ones, or record them when `TIANZHOU_RECORD_ANSWERS` is set.

    Args:
        name: name of the recording.
        answers: the live answers, values that JSON can encode.
        source: the program that answered, with its version.
        questions: as in `recorded`.
    """
    live, asked = plain(answers), list(questions)
    if os.environ.get(RECORD):
        FOLDER.mkdir(exist_ok=True)
        content = {"source": source, "questions": digest(asked), "answers": live}
        text = json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True)
        file_of(name).write_text(text + "\n", encoding="utf-8")
    before = recorded(name, asked)
    if isinstance(live, dict) and isinstance(before, dict):
        names = sorted(live.keys() | before.keys())
        changed = {key: (before.get(key), live.get(key)) for key in names if before.get(key) != live.get(key)}
        assert not changed, f"{source} answers {len(changed)} of {len(names)} otherwise than recorded: {changed}"
    assert live == before, f"{source} answers otherwise than recorded; {how_to_record()}"


def digest(lines: Iterable[str]) -> str:
    """Return one digest of many lines. A recording stores it in place of answers that are too long for the file."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def how_to_record() -> str:
    """Return the remedy that an error prints: how to record the answers again."""
    return f"run this file with {RECORD}=1 and -m slow to record anew"
