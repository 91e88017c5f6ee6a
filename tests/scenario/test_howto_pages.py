"""The Python of pages about consuming and managing is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
WITH_USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"a-long-secret"}',
}


def examples_of(page: str, language: str = "python") -> list[str]:
    text = (HOWTO / page).read_text(encoding="utf-8")
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found
    return found


@pytest.mark.parametrize("page", ["admin.md", "filters.md", "coming-from-rocketmq.md", "coming-from-other-queues.md"])
def test_the_examples_of_a_page_run_one_after_the_other(page: str, tianzhou_cluster_factory: Any) -> None:
    plain = tianzhou_cluster_factory()
    for text in examples_of(page):
        cluster = tianzhou_cluster_factory(settings=WITH_USERS) if "access_key=" in text else plain
        code = text.replace("127.0.0.1:9876", cluster.namesrv_addr)
        assert code != text
        exec(compile(code, page, "exec"), {"__name__": "__main__"})
