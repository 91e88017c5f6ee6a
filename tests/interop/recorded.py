"""Answers of Apache's servers, tools and libraries to fixed questions, recorded in `tests/golden/apache`.

A test that compares our answers with Apache's reads the recorded ones. The same questions are put to live Apache in
`./test --slow`, by tests that call `is_as_recorded`: it compares the live answers with the recorded ones, or writes the
file anew when the variable `TIANZHOU_RECORD_ANSWERS` is set. Nothing but these tests writes the files.
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
"""The variable that has the slow tests write the files."""


def file_of(name: str) -> Path:
    """Return the file of a recording."""
    return FOLDER / f"{name}.json"


def recorded(name: str, questions: Iterable[str] = ()) -> Any:
    """Return recorded answers.

    Args:
        name: of the recording.
        questions: what is asked, if that is drawn by chance or from a list of the test's own.

    Raises:
        AssertionError: the answers were recorded for other questions.
    """
    found = json.loads(file_of(name).read_text(encoding="utf-8"))
    assert found["questions"] == digest(questions), f"{name} was recorded for other questions: {how_to_record()}"
    return found["answers"]


def plain(answers: Any) -> Any:
    """Return answers as a recording gives them back: lists for tuples, texts for the keys of dictionaries."""
    return json.loads(json.dumps(answers))


def is_as_recorded(name: str, answers: Any, *, source: str, questions: Iterable[str] = ()) -> None:
    """Assert that live answers are the recorded ones, or record them when `TIANZHOU_RECORD_ANSWERS` is set.

    Args:
        name: of the recording.
        answers: what JSON can hold.
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
    """Return what is recorded of answers that are too long to be kept: one number for all of them."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def how_to_record() -> str:
    """Return the advice of an error."""
    return f"run this file with {RECORD}=1 and -m slow to record anew"
