"""Tests name few private attributes of `src`, and ever fewer."""

from __future__ import annotations

from pathlib import Path

import pytest
from private_names import uses

MAX_USES = 127
"""Uses of private names in all tests; only ever lowered. Ask a probe (`tests/*_probe.py`), or add a question to one."""


def test_tests_name_few_private_attributes() -> None:
    found = uses()
    count = sum(names.total() for names in found.values())
    worst = sorted(found, key=lambda path: -found[path].total())[:10]
    assert count <= MAX_USES, f"{count} uses; run python tests/form/suite/private_names.py; most in {worst}"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("store._queues.table", ["_queues"]),
        ("self._queues.table", []),
        ("store.queues", []),
        ("named_tuple._replace(a=1)", []),
        ("from tianzhou.store import _queues", ["_queues"]),
        ("from elsewhere import _queues", []),
        ("monkeypatch.setattr(store, '_queues', {})", ["_queues"]),
        ("patch.object(store, '_queues')", ["_queues"]),
        ("store._no_name_of_src", []),
    ],
)
def test_uses_are_found(line: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "store.py").write_text("class Store:\n    def __init__(self): self._queues = {}\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_store.py").write_text(line)
    assert [name for one in uses(tmp_path / "tests", tmp_path / "src").values() for name in one] == names
