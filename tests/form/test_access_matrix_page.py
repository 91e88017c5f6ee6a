"""The page about access decisions agrees with rows and recorded answers, and each difference has a reason."""

from __future__ import annotations

import access_matrix as matrix
from access_requests import REQUESTS

from tianzhou.access.needs import ROWS

PRINT = (
    "print it again: PYTHONPATH=src:tests:tests/contract:tests/contract/access python tests/form/access_matrix.py"
    " > docs/reference/access-matrix.md"
)
LESS = (matrix.EVERYBODY, matrix.ANY_ACCOUNT, matrix.PERMITTED)


def test_the_page_is_what_rows_and_answers_say() -> None:
    assert matrix.PAGE.read_text(encoding="utf-8") == matrix.page(), PRINT


def test_apaches_answers_are_recorded_for_every_code() -> None:
    codes = {request.code for request in REQUESTS}
    assert {version: found.keys() for version, found in matrix.recorded().items()} == dict.fromkeys(matrix.KINDS, codes)


def test_every_difference_has_a_reason() -> None:
    without = {f"{code} ({version})" for code, version in matrix.differences() if not ROWS[code].differs}
    assert without == set(), "say in tianzhou.access.needs why ours want more"


def test_every_reason_has_a_difference() -> None:
    answers = matrix.recorded()
    for request in REQUESTS:
        code = request.code
        apart = {
            version
            for version, kind in matrix.KINDS.items()
            if answers[version][code] not in (matrix.NOT_SERVED, matrix.wanted(code, kind))
        }
        assert apart or not ROWS[code].differs, f"{code}: Apache's servers want as much"


def test_ours_never_want_less_than_apaches() -> None:
    answers = matrix.recorded()
    for code, version in matrix.differences():
        theirs, wanted = answers[version][code], matrix.wanted(code, matrix.KINDS[version])
        assert LESS.index(theirs) < LESS.index(wanted), f"{code} ({version})"
