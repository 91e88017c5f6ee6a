"""The Python of pages about consuming and managing is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"


@pytest.mark.parametrize("page", ["admin.md", "filters.md"])
def test_the_examples_of_a_page_run_one_after_the_other(page: str, tianzhou_cluster: Any) -> None:
    examples = re.findall(
        r"^```python\n(.*?)^```", (HOWTO / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert examples
    for text in examples:
        code = text.replace("127.0.0.1:9876", tianzhou_cluster.namesrv_addr)
        assert code != text
        exec(compile(code, page, "exec"), {"__name__": "__main__"})
