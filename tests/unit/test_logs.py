"""A log has one line for each record, whatever hostile text is logged."""

from __future__ import annotations

import datetime as dt
import json
import logging
import os

from tianzhou.logs import JsonFormatter, OneLineFormatter


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


def as_json(text: str, *args: object, error: Exception | None = None, broker: str = "") -> dict[str, object]:
    found = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("tianzhou.test", logging.WARNING, "file.py", 1, text, args, found)
    line = JsonFormatter(broker).format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert "\u202e" not in line
    found_fields: dict[str, object] = json.loads(line)
    return found_fields


def test_json_has_a_line_a_record_whatever_is_in_it() -> None:
    fields = as_json("client %s left", 'x"\n{"level": "ERROR"}\x1b[2J\u202e\ud800')
    assert fields["message"] == 'client x"\n{"level": "ERROR"}\x1b[2J\u202e\ud800 left'
    assert (fields["level"], fields["logger"], fields["process"]) == ("WARNING", "tianzhou.test", os.getpid())
    assert dt.datetime.fromisoformat(str(fields["time"])).tzinfo is not None
    assert "exception" not in fields
    assert "broker" not in fields


def test_json_has_the_traceback_and_the_broker_in_fields_of_their_own() -> None:
    try:
        raise ValueError("bad\nvalue")
    except ValueError as error:
        fields = as_json("failed", error=error, broker="broker-1")
    assert fields["message"] == "failed"
    assert str(fields["exception"]).startswith("Traceback")
    assert str(fields["exception"]).endswith("ValueError: bad\nvalue")
    assert fields["broker"] == "broker-1"
