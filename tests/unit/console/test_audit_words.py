"""Entries of the audit log on a Chinese page: every action that pages do has its words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nicegui", reason="the console's packages are not installed")

import tianzhou.console
from tianzhou.console.forms.upkeep import CLEANUPS
from tianzhou.console.layout import View
from tianzhou.console.pages.audit_log import entry_in_chinese
from tianzhou.console.texts.audit import ACTIONS

VIEW = View(None, None, "", "zh")  # type: ignore[arg-type]


def test_every_action_has_chinese_words() -> None:
    folder = Path(tianzhou.console.__path__[0])
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))
    done = set(re.findall(r'\bact\(\s*"([^"]+)"', text)) | {action for action, _ in CLEANUPS.values()}
    done |= {f"delete {noun}" for noun in re.findall(r'deletion_button\(view, "(\w+)"', text)}
    done |= set(re.findall(r'await change\("([^"]+)" if \w+ else "(?:[^"]+)"', text))
    assert len(done) > 20
    assert done - ACTIONS.keys() == set()
    assert {"enable user", "reset offsets", "preview reset of offsets", "wipe write permission"} <= ACTIONS.keys()


@pytest.mark.parametrize(
    ("entry", "action", "outcome"),
    [
        ({"action": "create topic", "outcome": "begun"}, "新建主题", "开始"),
        ({"action": "reset offsets", "outcome": "failed: topic a does not exist; create it first"},
         "重置位点", "失败：主题 a 不存在；请先创建"),
        ({"action": "of another version", "outcome": "odd"}, "of another version", "odd"),
        ({}, "", ""),
    ],
)  # fmt: skip
def test_an_entry_in_chinese(entry: dict[str, Any], action: str, outcome: str) -> None:
    found = entry_in_chinese({**entry, "subject": "a"}, VIEW)
    assert (found["action"], found["outcome"], found["subject"]) == (action, outcome, "a")
