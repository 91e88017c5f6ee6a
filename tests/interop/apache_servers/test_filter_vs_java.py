"""Our filters compared with RocketMQ's filter library: accepted expressions, results, and the bits of bloom filters.

The library's answers are recorded (`recorded.py`). `./test --slow` sends the same questions, and others, to the library
itself. `TIANZHOU_FILTER_EXPRESSIONS` sets the number of expressions of that run, `TIANZHOU_FILTER_SEED` their choice.
"""

from __future__ import annotations

import base64
import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
import toolchain
from recorded import is_as_recorded, recorded
from sql_cases import Cases, Properties

from tianzhou.errors import FilterSyntaxError
from tianzhou.filter import BloomFilter, IncomparableError, SqlFilter, parse_sql

SEED = 92
COUNTS = {"5.3.3": 4000, "4.9.7": 1000}
"""Number of recorded expressions, by version of the library."""
OTHER_EXPRESSIONS = int(os.environ.get("TIANZHOU_FILTER_EXPRESSIONS", "4000"))
OTHER_SEED = os.environ.get("TIANZHOU_FILTER_SEED")
SETS = 400
SETS_EACH = 8
TIMEOUT_S = 600

# RocketMQ 4.9 does not have these functions: there they are names of properties.
SINCE_5 = ("CONTAINS", "STARTSWITH", "ENDSWITH")


def oracle(version: str, lines: Iterable[str]) -> list[str]:
    """Return the answers of RocketMQ's library."""
    try:
        command = [toolchain.tool("java"), "-Xmx512m", "-Xss1m", "-cp", toolchain.filter_oracle(version), "Oracle"]
    except toolchain.ToolchainMissingError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        command,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=toolchain.environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def text(value: str) -> str:
    """Return a text for the oracle; a mark makes the empty one visible."""
    return "." + base64.b64encode(value.encode()).decode()


def outcome(made: SqlFilter, properties: Properties) -> str:
    """Return one letter, in the oracle's format."""
    try:
        value = made.evaluate(properties.get)
    except IncomparableError:
        return "X"
    return {True: "T", False: "F", None: "N"}[value]


def ours(expression: str, sets: list[Properties]) -> str:
    """Return our answer."""
    try:
        made = parse_sql(expression)
    except FilterSyntaxError:
        return "R"
    letters = "".join(outcome(made, properties) for properties in sets)
    # Every property that the expression reads must be in its names, or the broker would treat it as absent.
    named = "".join(outcome(made, {k: v for k, v in one.items() if k in made.names}) for one in sets)
    assert named == letters, expression
    assert [made.matches(one.get) for one in sets] == [letter == "T" for letter in letters]
    return letters


Answerer = Callable[[str, list[str]], list[str]]
"""A function that answers the lines of questions of a name: from a recording, or by the library."""


def from_recording(version: str) -> Answerer:
    """Return a function that returns the recorded answers of a version."""
    return lambda name, lines: list(recorded(f"{name}-{version}", lines))


def from_library(version: str) -> Answerer:
    """Return a function that gets the answers of a version's library."""
    return lambda _, lines: oracle(version, lines)


def records(version: str) -> Answerer:
    """Return a function that gets the answers of a version's library, and compares them with the recorded ones."""

    def answer(name: str, lines: list[str]) -> list[str]:
        answers = oracle(version, lines)
        is_as_recorded(f"{name}-{version}", answers, source=f"filter library {version}", questions=lines)
        return answers

    return answer


FILTERS, LARGE, BLOOM = "filter-expressions", "filter-large-expressions", "bloom-filters"


def compare_expressions(version: str, count: int, seed: int, answerer: Answerer) -> None:
    """Check that the same expressions are accepted, and that each gives true, false, NULL or an error for the same
    messages.
    """
    cases = Cases(seed, searches=version.startswith("5"))
    chosen = random.Random(seed)
    sets: list[Properties] = [{}] + [cases.properties() for _ in range(SETS - 1)]
    asked = []
    while len(asked) < count:
        expression = cases.expression()
        if version.startswith("4") and any(word in expression.upper() for word in SINCE_5):
            continue
        asked.append((expression, [chosen.randrange(SETS) for _ in range(SETS_EACH)]))
    lines = ["P " + " ".join(f"{text(name)} {text(value)}" for name, value in one.items()) for one in sets]
    lines += [f"E {text(expression)} {' '.join(map(str, numbers))}" for expression, numbers in asked]
    answers = answerer(FILTERS, lines)
    assert len(answers) == len(asked)
    different = []
    letters: Counter[str] = Counter()
    for (expression, numbers), answer in zip(asked, answers, strict=True):
        mine = ours(expression, [sets[number] for number in numbers])
        letters.update(answer)
        if mine != answer:
            different.append((expression, answer, mine, [sets[number] for number in numbers]))
    assert not different, f"{len(different)} of {count} differ, first: {different[:3]}"
    # The cases are of use only when every outcome is frequent among them.
    assert letters["R"] < count * 0.75
    assert all(letters[letter] > count / 10 for letter in "TFNXR"), letters


@pytest.mark.parametrize("version", COUNTS)
def test_expressions_are_refused_and_come_out_as_in_java(version: str) -> None:
    compare_expressions(version, COUNTS[version], SEED, from_recording(version))


@pytest.mark.slow
@pytest.mark.parametrize("version", COUNTS)
def test_the_library_decides_about_expressions_as_recorded(version: str) -> None:
    compare_expressions(version, COUNTS[version], SEED, records(version))


@pytest.mark.slow
@pytest.mark.parametrize("version", COUNTS)
def test_other_expressions_come_out_as_in_java(version: str) -> None:
    seed = int(OTHER_SEED) if OTHER_SEED is not None else random.randrange(1 << 30)
    print(f"TIANZHOU_FILTER_SEED={seed}")
    compare_expressions(version, OTHER_EXPRESSIONS * COUNTS[version] // COUNTS["5.3.3"], seed, from_library(version))


LARGE_EXPRESSIONS = [
    "(" * 90 + "a = '1'" + ")" * 90, "NOT " * 99 + "a IS NULL", " OR ".join(f"a = '{i}'" for i in range(3000)),
]  # fmt: skip


def compare_large(answerer: Answerer) -> None:
    """Check that long expressions are no deeper than short ones, and that the depth limit is above any
    hand-written one.
    """
    sets: list[Properties] = [{}, {"a": "1"}, {"a": "2999"}]
    lines = [f"P {text('a')} {text(one['a'])}" if one else "P" for one in sets]
    lines += [f"E {text(expression)} 0 1 2" for expression in LARGE_EXPRESSIONS]
    assert [ours(expression, sets) for expression in LARGE_EXPRESSIONS] == answerer(LARGE, lines)


def test_large_expressions() -> None:
    compare_large(from_recording("5.3.3"))


@pytest.mark.slow
def test_the_library_decides_about_large_expressions_as_recorded() -> None:
    compare_large(records("5.3.3"))


def compare_bloom_filters(answerer: Answerer) -> None:
    """Compare number of hashes, size and positions for all error rates, and for texts of all lengths and kinds."""
    pick = random.Random(SEED)
    letters = "abcXYZ019#_%-é天😀"
    texts = ["", "cg#orders", *("".join(pick.choices(letters, k=size)) for size in range(1, 70))]
    asked = [(percent, expected) for percent in range(1, 100) for expected in (1, 7, 32, 64, 100, 1000)]
    chosen = [pick.sample(texts, 5) for _ in asked]
    lines = [
        f"B {percent} {expected} {' '.join(map(text, some))}"
        for (percent, expected), some in zip(asked, chosen, strict=True)
    ]
    for (percent, expected), some, answer in zip(asked, chosen, answerer(BLOOM, lines), strict=True):
        bloom = BloomFilter(percent, expected)
        entries = [bloom.data(one) for one in some]
        positions = [position for entry in entries for position in entry.bit_pos]
        mine = f"{bloom.hashes} {bloom.bits} {' '.join(map(str, positions))} {bloom.bitmap(entries).hex()}"
        assert mine == answer, (percent, expected)


def test_bloom_filters_set_the_same_bits() -> None:
    compare_bloom_filters(from_recording("5.3.3"))


@pytest.mark.slow
def test_the_librarys_bloom_filters_set_the_bits_recorded() -> None:
    compare_bloom_filters(records("5.3.3"))
