"""The form for limits of senders: the limits and the words of the command line, each problem at its field."""

from __future__ import annotations

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

from typer.testing import CliRunner

from tianzhou.admin.send_limits import LimitStatus
from tianzhou.cli.app import whole_app
from tianzhou.console.pages.limits import NUMBERS, limit_or_problem, limit_rows
from tianzhou.console.texts import TEXTS
from tianzhou.errors import ConfigError
from tianzhou.model.send_limit import LimitScope, limit_of


def numbers(*values: float | None) -> dict[str, float | None]:
    return dict(zip(NUMBERS, values, strict=False))


@pytest.mark.parametrize(
    ("scope", "name", "values", "limit"),
    [
        ("topic", " orders ", (500, 1_000), limit_of(LimitScope.TOPIC, "orders", 500, 1_000)),
        ("group", "*", (None, None, 1e6), limit_of(LimitScope.GROUP, "*", None, None, 1e6)),
        ("client", "0:0:0:0:0:0:0:1", (50, None, 10, 20), limit_of(LimitScope.CLIENT, "::1", 50, None, 10, 20)),
    ],
)
def test_the_form_makes_the_limit_of_the_command_line(
    scope: str, name: str, values: tuple[float | None, ...], limit: object
) -> None:
    assert limit_or_problem(scope, name, numbers(*values)) == (limit, {})


@pytest.mark.parametrize(
    ("scope", "name", "values", "field", "options"),
    [
        ("topic", "a b", (5,), "name", ("--rate", "5")),
        ("topic", "", (5,), "name", ("--rate", "5")),
        ("topic", "%RETRY%shop", (5,), "name", ("--rate", "5")),
        ("group", "a/b", (5,), "name", ("--rate", "5")),
        ("client", "a b", (5,), "name", ("--rate", "5")),
        ("topic", "orders", (0,), "rate", ("--rate", "0")),
        ("topic", "orders", (-5,), "rate", ("--rate", "-5")),
        ("topic", "orders", (1e13,), "rate", ("--rate", "1e13")),
        ("topic", "orders", (5, 0.5), "burst", ("--rate", "5", "--burst", "0.5")),
        ("topic", "orders", (None, 5, 9), "burst", ("--bytes", "9", "--burst", "5")),
        ("topic", "orders", (None, None, 0), "rate_bytes", ("--bytes", "0")),
        ("topic", "orders", (5, None, None, 9), "burst_bytes", ("--rate", "5", "--bytes-burst", "9")),
    ],
)
def test_a_problem_is_at_its_field_in_the_words_of_the_command_line(
    scope: str, name: str, values: tuple[float | None, ...], field: str, options: tuple[str, ...]
) -> None:
    limit, problems = limit_or_problem(scope, name, numbers(*values))
    assert limit is None
    assert list(problems) == [field]
    command = ["limit", "set", f"--{scope}", name, *options, "-n", "127.0.0.1:1"]
    result = CliRunner().invoke(whole_app(), command)
    assert isinstance(result.exception, ConfigError), result.output
    assert str(result.exception) == problems[field]


def test_a_form_without_any_rate_has_its_problem_at_the_rate() -> None:
    assert list(limit_or_problem("topic", "orders", {})[1]) == ["rate"]


def test_limits_of_several_brokers_are_rows_of_their_own() -> None:
    limit = limit_of(LimitScope.TOPIC, "orders", 500, 1_000)
    rows = limit_rows([LimitStatus("broker-a", limit), LimitStatus("broker-b", limit, 7, "orders", 1_000)], str)
    assert [(row["broker"], row["limit"], row["refused"]) for row in rows] == [
        ("broker-a", "topic orders", 0), ("broker-b", "topic orders", 7),
    ]  # fmt: skip
    assert len({row["key"] for row in rows}) == 2
    assert {row["limit_key"] for row in rows} == {"topic:orders"}


def test_each_scope_and_field_has_its_words() -> None:
    keys = [f"limit.scope.{scope}" for scope in LimitScope] + [f"limit.{one}" for one in (*NUMBERS, "name")]
    assert [key for key in keys if key not in TEXTS] == []
