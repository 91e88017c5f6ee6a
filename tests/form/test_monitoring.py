"""Dashboard, alarms, page and programs name the same figures, and each alarm has its paragraph."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "monitoring"
PAGE = (ROOT / "docs" / "reference" / "alarms.md").read_text(encoding="utf-8")
ALARMS = (MONITORING / "alarms.yml").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "src" / "tianzhou").rglob("*.py")))
NAME = re.compile(r"\b(?:rocketmq|tianzhou|process)_[a-z_]+[a-z]\b")
OF_NAMES = re.compile(r"_(bucket|sum|count)$")
MADE = {"rocketmq_commit_messages_total", "rocketmq_rollback_messages_total"}
"""Families whose names are assembled in the code."""


def test_the_dashboard_is_what_its_table_says() -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts" / "dashboard"), "--check"], check=True, timeout=60)


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    board = json.loads((MONITORING / "grafana.json").read_text(encoding="utf-8"))
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: dict[tuple[int, int], int] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"], "panels lie over each other"
        if panel["type"] == "row":
            continue
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert [target["refId"] for target in panel["targets"]] == list("ABCD"[: len(panel["targets"])])
        assert all(target["expr"] and target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    names = {one["name"] for one in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(board["panels"])))
    assert used <= names


@pytest.mark.parametrize("file", ["grafana.json", "alarms.yml"])
def test_what_is_asked_for_is_what_servers_show(file: str) -> None:
    asked = {OF_NAMES.sub("", name) for name in NAME.findall((MONITORING / file).read_text(encoding="utf-8"))}
    assert sorted(name for name in asked - MADE if f'"{name}"' not in SOURCE) == []


def test_each_alarm_has_its_paragraph() -> None:
    alarms = re.findall(r"- alert: (\w+)", ALARMS)
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == alarms
    for alarm in alarms:
        paragraph = PAGE.partition(f"### {alarm}\n")[2].partition("\n###")[0]
        assert len(paragraph.split()) > 25, f"{alarm}: what it means, how to confirm it, what to do"
