"""A log has one line a record, whatever strangers wrote into what is logged."""

from __future__ import annotations

import logging

from tianzhou.logs import OneLineFormatter


def logged(text: str, *args: object, error: Exception | None = None) -> list[str]:
    found = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("tianzhou.test", logging.WARNING, "file.py", 1, text, args, found)
    return OneLineFormatter().format(record).splitlines()


def test_a_client_id_cannot_forge_a_line() -> None:
    lines = logged("client %s left", "x\n2026-01-01 00:00:00,000 ERROR tianzhou: forged\x1b[2J")
    assert len(lines) == 1
    assert lines[0].endswith("client x\\n2026-01-01 00:00:00,000 ERROR tianzhou: forged\\x1b[2J left")


def test_lines_of_a_traceback_do_not_look_like_records() -> None:
    try:
        raise ValueError("bad\n2026-01-01 00:00:00,000 ERROR tianzhou: forged\x1b[2J")
    except ValueError as error:
        first, *others = logged("failed", error=error)
    assert first.endswith("WARNING tianzhou.test: failed")
    assert all(line.startswith("    ") for line in others)
    assert not any("\x1b" in line for line in others)
