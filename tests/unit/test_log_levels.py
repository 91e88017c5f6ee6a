"""Levels of the log: parsed from text, refused with a remedy, changed while a process runs and reset."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tianzhou.errors import ConfigError
from tianzhou.log_levels import MOST_LEVELS, parse_levels
from tianzhou.logs import ChangedLevels, check_modules


@pytest.fixture
def remoting() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tianzhou.remoting")
    before = logger.level
    yield logger
    logger.setLevel(before)


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", {}),
        (" , ", {}),
        ("INFO", {"": 20}),
        ("warning, tianzhou.remoting = debug", {"": 30, "tianzhou.remoting": 10}),
        ("tianzhou.store=INFO,tianzhou.store=ERROR", {"tianzhou.store": 40}),
        ("tianzhou=CRITICAL", {"tianzhou": 50}),
    ],
)
def test_levels_are_read(text: str, levels: dict[str, int]) -> None:
    assert parse_levels(text) == levels


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("LOUD", "'LOUD' is no level; write one of DEBUG, INFO"),
        ("tianzhou.remoting=", "'' is no level"),
        ("tianzhou.remoting", "'tianzhou.remoting' is no level"),
        ("=INFO", "'' is no module"),
        ("asyncio=DEBUG", "'asyncio' is no module of tianzhou; write its dotted name"),
        ("tianzhou..remoting=DEBUG", "is no module"),
        ("tianzhou.../etc=DEBUG", "is no module"),
        ("tianzhou." + "x" * 1000 + "=DEBUG", "is no module"),
        (",".join(["INFO"] * (MOST_LEVELS + 1)), "at most 32"),
    ],
)
def test_what_cannot_be_is_named_with_the_fix(text: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_levels(text, "--log-level")
    assert str(refused.value).startswith("--log-level: ")
    assert named in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_module_that_there_is_not_is_refused_at_the_start() -> None:
    check_modules({"": 10, "tianzhou": 10, "tianzhou.remoting": 10, "tianzhou.remoting.connection": 10}, "--log-level")
    with pytest.raises(ConfigError, match=r"--log-level: there is no module tianzhou\.remoting\.conection"):
        check_modules({"tianzhou.remoting.conection": 10}, "--log-level")


def test_a_changed_level_comes_back_when_it_is_named_no_more(remoting: logging.Logger) -> None:
    remoting.setLevel(logging.ERROR)
    changed = ChangedLevels()
    changed.change("tianzhou.remoting=DEBUG")
    changed.change("tianzhou.remoting=INFO")
    assert remoting.level == logging.INFO
    changed.change("")
    assert remoting.level == logging.ERROR


def test_a_request_that_names_no_module_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    changed = ChangedLevels()
    changed.change("tianzhou.remoing=DEBUG")
    changed.change("")
    assert "there is no module tianzhou.remoing, so its level changes nothing" in caplog.text
