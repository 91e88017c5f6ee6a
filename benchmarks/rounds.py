"""Shared helpers of benchmarks that measure in rounds: options, and the order of sides in a round."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common options; the description is the module's docstring."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one round of short measurements: minutes in all")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--json", type=Path, help="write every figure of every round here")
    parser.add_argument("--markdown", type=Path, help="put the table into this page, in place of the last one")
    return parser


def set_duration(arguments: argparse.Namespace, *, rounds: int, secs: tuple[int, int], warm: tuple[int, int]) -> None:
    """Set the defaults of rounds, seconds of a measurement and of warm-up; the first of each pair is for `--short`."""
    arguments.rounds = arguments.rounds or (1 if arguments.short else rounds)
    arguments.secs, arguments.warm = (pair[not arguments.short] for pair in (secs, warm))


def some_of(parser: argparse.ArgumentParser, option: str, text: str, known: Collection[str]) -> list[str]:
    """Return the names of an option's comma list in the order of `known`; exit when a name is unknown."""
    wanted = text.split(",")
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"{option}: {', '.join(unknown)} is unknown; there are {', '.join(known)}")
    return [name for name in known if name in wanted]


def in_turn(names: list[T], number: int) -> list[T]:
    """Return the names in the order of a round; each round begins with the next name."""
    at = number % len(names)
    return names[at:] + names[:at]
