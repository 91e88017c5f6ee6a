"""The log texts that tests capture do not depend on libraries that earlier tests have loaded."""

from __future__ import annotations

import logging

import pytest


class JsonLogger(logging.Logger):
    """A logger that replaces the formatter of each handler, as Spark's loggers do."""

    def addHandler(self, hdlr: logging.Handler) -> None:  # noqa: N802 - the standard library's name
        """Replace the handler's formatter, and attach the handler."""
        hdlr.setFormatter(logging.Formatter('{"msg": "%(message)s"}'))
        super().addHandler(hdlr)


@pytest.fixture(scope="module", autouse=True)
def a_logger_that_changes_handlers() -> None:
    logging.setLoggerClass(JsonLogger)
    logging.getLogger("json_logger").propagate = False
    logging.setLoggerClass(logging.Logger)


def test_captured_logs_have_pytests_form(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("tianzhou.some").warning("one line")
    assert "{" not in caplog.text
    assert "one line" in caplog.text
