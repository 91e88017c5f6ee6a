"""The page of mqadmin agrees with the tests' record for every sub-command, in each direction."""

from __future__ import annotations

import mqadmin_table as table
import pytest
from mqadmin_commands import COMMANDS
from mqadmin_directions import DIFFERENCES, DIRECTIONS

from tianzhou.cli.mqadmin.catalogue import all_names


def test_the_page_is_what_the_record_says() -> None:
    print_again = "print it again: PYTHONPATH=src .venv/bin/python tests/form/mqadmin_table.py"
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), print_again


@pytest.mark.parametrize("name", all_names())
def test_each_cell_says_same_differs_or_not_there(name: str) -> None:
    for direction in DIRECTIONS:
        assert table.cell(name, direction), (name, direction)


def test_the_record_names_commands_that_are_run() -> None:
    run = {asked.name for asked in COMMANDS}
    for direction in DIRECTIONS:
        assert set(DIFFERENCES[direction]) <= run, direction
