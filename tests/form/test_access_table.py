"""Every request that any server serves has a row of needs, and the page of needs agrees with the rows."""

from __future__ import annotations

import access_table as table
import code_table
import pytest

from tianzhou.access import body_names
from tianzhou.access.body_names import BY_BODY
from tianzhou.access.needs import ROWS, fields_of
from tianzhou.broker.large_bodies import DECODERS
from tianzhou.wire.bodies.dledger import REQUESTS as OF_MEMBERS
from tianzhou.wire.codes import DLedgerRequestCode, RequestCode
from tianzhou.wire.fields import request_fields

PRINT = "print it again: PYTHONPATH=src python tests/form/access_table.py > docs/reference/access.md"


def test_the_page_is_what_the_rows_say() -> None:
    assert table.PAGE.read_text(encoding="utf-8") == table.page(), PRINT


@pytest.mark.parametrize("server", ["broker", "name server", "members"])
def test_every_code_that_is_served_has_a_row(server: str) -> None:
    served = {
        "broker": code_table.broker_handlers,
        "name server": code_table.namesrv_handlers,
        "members": lambda: dict.fromkeys(map(int, OF_MEMBERS), ""),
    }[server]()
    assert len(served) >= 10
    assert sorted(set(served) - ROWS.keys()) == [], "say in tianzhou.access.needs who may"


def test_rows_are_of_codes_there_are() -> None:
    known = {*map(int, RequestCode), *map(int, DLedgerRequestCode)}
    assert known == ROWS.keys()


@pytest.mark.parametrize("code", sorted(ROWS))
def test_a_row_names_fields_that_the_handlers_header_has(code: int) -> None:
    assert fields_of(code) <= {field.wire for field in request_fields(code)}


def test_bodies_that_say_what_is_needed_are_read_by_the_decoders_of_handlers() -> None:
    assert DECODERS.keys() - BY_BODY == {RequestCode.CHECK_CLIENT_CONFIG}, "which asks about an expression only"
    assert BY_BODY - DECODERS.keys() == {RequestCode.STAGE_MESSAGES}, "which is binary, and read by its handler"
    assert table.BODIES.keys() == BY_BODY


@pytest.mark.parametrize("code", sorted(BY_BODY & DECODERS.keys()))
def test_there_is_one_decoder_of_a_body(code: int) -> None:
    ours, theirs = body_names._BODIES[code][0], DECODERS[code]
    assert getattr(ours, "__self__", None) is getattr(theirs, "__self__", 1)
