"""What tests read of logs does not depend on which libraries the tests before them have loaded."""

from __future__ import annotations

import logging

import pytest


class JsonLogger(logging.Logger):
    """Gives each handler a form of its own, as Spark's loggers do."""

    def addHandler(self, hdlr: logging.Handler) -> None:  # noqa: N802 - the standard library's name
        """Attach a handler, changed."""
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
