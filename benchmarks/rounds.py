"""What benchmarks that measure in rounds share: their options, and who begins."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all have; the description is the module's docstring."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="one round of short measurements: minutes in all")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--json", type=Path, help="write every figure of every round here")
    parser.add_argument("--markdown", type=Path, help="put the table into this page, in place of the last one")
    return parser


def set_duration(arguments: argparse.Namespace, *, rounds: int, secs: tuple[int, int], warm: tuple[int, int]) -> None:
    """Fill in rounds, seconds of a measurement and of warming; the first of each pair is for `--short`."""
    arguments.rounds = arguments.rounds or (1 if arguments.short else rounds)
    arguments.secs, arguments.warm = (pair[not arguments.short] for pair in (secs, warm))


def some_of(parser: argparse.ArgumentParser, option: str, text: str, known: Collection[str]) -> list[str]:
    """The names of an option's comma list in the order of those that are known; ends the process when one is not."""
    wanted = text.split(",")
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"{option}: {', '.join(unknown)} is unknown; there are {', '.join(known)}")
    return [name for name in known if name in wanted]


def in_turn(names: list[T], number: int) -> list[T]:
    """The names, beginning with another one in each round."""
    at = number % len(names)
    return names[at:] + names[:at]
