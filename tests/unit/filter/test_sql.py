"""SQL92 expressions select the same messages as RocketMQ's, and the error for a wrong one has its position."""

import pytest

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter import IncomparableError, check_whole, parse_sql
from tianzhou.limits import FILTER_TERMS

MESSAGE = {"n": "15", "x": "3.5", "TAGS": "a", "city": "São Paulo", "flag": "True", "empty": ""}


@pytest.mark.parametrize(
    "expression",
    [
        "n = 15", "n <> 16", "n > 14 AND n < 16", "15 = n", "n BETWEEN 10 AND 20", "n NOT BETWEEN 1 AND 2", "x = 3.5",
        "x > .35e1 OR x >= 3.5", "TAGS = 'a'", "TAGS IN ('b', 'a')", "TAGS NOT IN ('b')", "city = 'São Paulo'",
        "city STARTSWITH 'São' AND city ENDSWITH 'lo' AND city CONTAINS ' '", "city NOT CONTAINS 'Rio'", "flag = TRUE",
        "missing IS NULL", "n IS NOT NULL", "NOT (n = 1 OR n = 2)", "not (n = 1) and tags is null", "n > x", "n > -1",
        "TAGS = 'a' -- a note\n AND n = 15 /* and another */", "n=15L", "TRUE", "missing = 1 OR n = 15", "x = +3.5",
        "TAGS <> 'it''s'",
    ],
)  # fmt: skip
def test_selected(expression: str) -> None:
    assert parse_sql(expression).matches(MESSAGE.get)


@pytest.mark.parametrize(
    "expression",
    [
        "n = 16", "n = '16'", "missing = 1", "NOT missing = 1", "missing <> 'a'", "missing NOT IN ('a')", "N = 15",
        "x = 3", "x < 4", "TAGS > 1", "TAGS < city", "flag", "NOT missing", "FALSE", "NULL", "TRUE = flag", "n > 15.0",
        "city CONTAINS ''", "city NOT CONTAINS ''", "missing NOT CONTAINS 'a'", "-n < 1",
        "n = 3000000000 OR TAGS = 'b'", "NOT n = 16", "n = 15 AND missing = 1",
    ],
)  # fmt: skip
def test_not_selected(expression: str) -> None:
    assert not parse_sql(expression).matches(MESSAGE.get)


def test_a_property_that_is_no_number_ends_the_evaluation() -> None:
    made = parse_sql("TAGS = 1 OR n = 15")
    with pytest.raises(IncomparableError):
        made.evaluate(MESSAGE.get)
    assert parse_sql("n = 15 OR TAGS = 1").matches(MESSAGE.get)


def test_it_knows_what_it_looks_at() -> None:
    made = parse_sql("a = 1 AND (NOT b OR c IN ('x') OR -d > e) AND f IS NULL AND g CONTAINS 'x' AND TRUE")
    assert made.names == set("abcdefg")


@pytest.mark.parametrize(
    ("expression", "position", "text"),
    [
        ("", 0, "expected a property, a value, NOT or (, but the expression ends at position 0"),
        ("n >", 3, "but the expression ends"), ("n = 15 AND", 10, "expected a property"),
        ("(n = 15", 7, "expected an operator or ), but the expression ends"),
        ("n BETWEEN 1 OR 2", 12, "expected AND between the two limits of BETWEEN, but OR stands"),
        ("n IN (1)", 6, "expected a string in single quotes after IN (, but 1 stands"),
        ("n IN ('1' '2')", 10, "expected , or ), but '2' stands"),
        ("n IS 1", 5, "expected NULL or NOT NULL, but 1 stands"), ("n NOT 1", 6, "after NOT, but 1 stands"),
        ("n = ?", 4, "no word begins with '?'"), ("n = 'a", 4, "the string has no closing quote"),
        ('n = "a"', 4, "strings stand in single quotes"), ("n = 1 /* note", 6, "the comment has no end"),
        ("'a' IN ('a')", 0, "expected a property before IN, but there is the string 'a'"),
        ("n > 'a'", 4, "only numbers and properties have an order, and the string 'a' is neither"),
        ("'a' > n", 0, "the string 'a' is neither"), ("'a' BETWEEN 1 AND 2", 0, "the string 'a' is neither"),
        ("n BETWEEN 'a' AND 2", 10, "the string 'a' is neither"),
        ("n BETWEEN 1 AND 'a'", 16, "the string 'a' is neither"),
        ("n NOT BETWEEN 'a' AND 2", 14, "the string 'a' is neither"),
        ("n NOT BETWEEN 1 AND TRUE", 20, "TRUE is neither"),
        ("n BETWEEN 2 AND 1", 10, "2 is greater than 1"), ("n = NULL", 4, "write IS NULL"),
        ("TRUE = 1", 7, "TRUE cannot be compared with the number 1"),
        ("n = 1 AND 'x'", 10, "expected a condition, but the string 'x' is none"),
        ("n = 9223372036854775808", 4, "greater than 9223372036854775807"), ("x > 0.0", 4, "0.0 is zero"),
        ("x > 1e999", 4, "greater than a double can be"),
        ("(" * 101 + "n = 1" + ")" * 101, 100, "nested deeper than 100 levels"),
        ("n" + " IS NULL" * 102, 810, "more than 100 comparisons of comparisons"),
    ],
)  # fmt: skip
def test_errors_name_the_place_and_what_was_expected(expression: str, position: int, text: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_sql(expression)
    assert text in str(caught.value)
    assert caught.value.position == position


def test_what_follows_a_complete_expression_counts_for_nothing_as_in_rocketmq() -> None:
    made = parse_sql("n = 15 n = 16")
    assert made.matches(MESSAGE.get)
    assert made.ignored == 7
    assert parse_sql("n = 15 -- note\n ").ignored is None
    with pytest.raises(FilterSyntaxError, match="complete before 'n = 16'"):
        check_whole("n = 15 n = 16")
    assert check_whole(" n = 15 ") == parse_sql(" n = 15 ")


def test_many_conditions_are_not_deep() -> None:
    many = " OR ".join(f"n = {i}" for i in range(100, 1100))
    assert not parse_sql(many).matches({"n": "5000"}.get)
    assert parse_sql(f"{many} OR n = 15").matches(MESSAGE.get)


@pytest.mark.over_limit("maxFilterTerms")
def test_an_expression_compares_no_more_than_the_limit() -> None:
    most = FILTER_TERMS.default // 2
    assert parse_sql(" AND ".join(["n > 1"] * most)).terms == FILTER_TERMS.default
    with pytest.raises(FilterSyntaxError, match=f"more than {FILTER_TERMS.default} properties and values"):
        parse_sql(" AND ".join(["n > 1"] * (most + 1)))


def test_texts_of_a_list_are_one_term() -> None:
    many = ", ".join(f"'{n}'" for n in range(5000))
    listed = parse_sql(f"n IN ({many})")
    assert listed.terms == 1
    assert listed.matches({"n": "4999"}.get)


@pytest.mark.parametrize("digits", ["0" * 2000 + "1", "\u0661" * 2000, "1" * 2000 + "e-1999", "0x" + "0" * 2000 + "p1"])
def test_endless_numbers_are_none(digits: str) -> None:
    for expression in ("n >= 0", "n < 0.5", "n = 1", "n > 3000000000"):
        assert not parse_sql(expression).matches({"n": digits}.get)
