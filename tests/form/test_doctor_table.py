"""The reference of findings names every finding of the doctor."""

from __future__ import annotations

from pathlib import Path

import doctor_table

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_doctor_finds() -> None:
    page = (ROOT / "docs" / "reference" / "findings.md").read_text(encoding="utf-8")
    assert page == doctor_table.page(), (
        "print it again: PYTHONPATH=src python tests/form/doctor_table.py > docs/reference/findings.md"
    )
