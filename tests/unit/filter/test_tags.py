"""Tag expressions have the same meaning as in Java's client, including hash codes."""

import pytest

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter import ALL, parse_tags


@pytest.mark.parametrize(
    ("tag", "code"),
    [("TagA", 2598919), ("TagB", 2598920), ("é中", 27236), ("😀", 1772899), ("polygenelubricants", -(2**31))],
)
def test_hash_is_javas(tag: str, code: int) -> None:
    assert parse_tags(tag).codes == {code}


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_nothing_named_selects_all(expression: str | None) -> None:
    assert parse_tags(expression) is ALL
    assert ALL.codes is None


@pytest.mark.parametrize("expression", ["TagA||TagB", "TagA || TagB", " TagB||TagA|| ", "TagA || || TagB"])
def test_spaces_and_empty_parts_do_not_matter(expression: str) -> None:
    assert parse_tags(expression).tags == {"TagA", "TagB"}
    assert parse_tags(expression).codes == {2598919, 2598920}


def test_a_star_beside_a_tag_is_just_another_tag() -> None:
    assert parse_tags("* || TagA").tags == {"*", "TagA"}


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_only_separators_are_refused(expression: str) -> None:
    with pytest.raises(FilterSyntaxError, match="no tag in the expression"):
        parse_tags(expression)
