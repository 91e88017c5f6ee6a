"""Every sub-command of mqadmin in five directions: prints `docs/reference/mqadmin.md`.

What it says is recorded in `tests/interop/administration/mqadmin_directions.py`; tests of `tests/interop` run the
tools and prove it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "mqadmin.md"
sys.path.insert(0, str(ROOT / "tests" / "interop" / "administration"))

from mqadmin_commands import COMMANDS  # noqa: E402
from mqadmin_directions import (  # noqa: E402
    ACCESS_DIFFERENCES,
    APACHE_497,
    APACHE_533,
    DIFFERENCES,
    DIRECTIONS,
    NOT_IN_497,
    ONLY_IN_497,
    OURS_TO_497,
    OURS_TO_533,
    OURS_TO_TIANZHOU,
)

from tianzhou.cli.mqadmin.catalogue import FAMILIES, every  # noqa: E402

HEAD = """# mqadmin, sub-command by sub-command

Every sub-command of Apache's mqadmin, 4.9.7 and 5.3.3, by its own name, flags and columns: `mqadmin NAME …` or
`tianzhou admin NAME …`. The page is printed by `PYTHONPATH=src python tests/form/mqadmin_table.py`; what it says is
proved by `tests/interop` (`test_mqadmin.py`, `test_mqadmin_497.py`, `test_mqadmin_users.py`), which run the tools.

*same*: the lines are those of Apache's tool, but for times, ids, measured figures and the order of hash maps. Ours is
compared with Apache's 5.3.3 tool at the same kind of cluster; a tool at Tianzhou with the same tool at Apache's 5.3.3
(accounts of 4.9: 4.9.7 in both places). Of settings and figures that each server has of its own only the names are
compared, of what is refused only the code.

Everywhere, and so not in the table:

- Errors are one line, `mqadmin: CODE: 17  DESC: …`, then what to do; the exit code is 1 when a server refuses and 2 for
  a wrong command line, where Apache's prints a stack trace and ends with 0.
- `--json` (or `--output json`, and `-o json` where mqadmin has no `-o` of its own) prints a JSON document a line.
- `-n` may be left out: `TIANZHOU_NAMESRV`, `NAMESRV_ADDR`, then 127.0.0.1:9876.
- Requests are signed with `TIANZHOU_ACCESS_KEY` and `TIANZHOU_SECRET_KEY`, else with the account of
  `$ROCKETMQ_HOME/conf/tools.yml`, as Apache's are.
"""
_WORDS = "not there: says so, and what to do"
_ENDLESS = "runs until it is ended, so not compared"
APART = {
    "clusterRT": _ENDLESS,
    "startMonitoring": _ENDLESS,
    "dumpCompactionLog": "reads a file, asks no cluster",
    **dict.fromkeys(FAMILIES["not_here"].split(), _WORDS),
}
"""What is said of sub-commands that no conversation has, when the tool is ours."""
_STATIC = frozenset({"updateStaticTopic", "remappingStaticTopic"})
_LOCAL = frozenset({"exportMetadataInRocksDB", "dumpCompactionLog"})
_ACCESS = frozenset(FAMILIES["users"].split())
_ACCOUNTS = frozenset(FAMILIES["accounts"].split())


def cell(name: str, direction: str) -> str:
    """What is said of a sub-command in a direction."""
    if direction == APACHE_497 and name in NOT_IN_497:
        return "not in 4.9.7"
    if direction == APACHE_533 and name in ONLY_IN_497:
        return "not in 5.3.3"
    theirs = direction in (APACHE_497, APACHE_533)
    if name in APART:
        return _apart(name) if theirs else APART[name]
    if name == "copyUser" and direction == APACHE_533:
        return "same words, and nothing is copied: Tianzhou's brokers tell nobody a password"
    if name in _ACCESS:
        if direction == OURS_TO_497:
            return "not there: 4.9.7 has accounts; code 3"
        return _said(ACCESS_DIFFERENCES[direction].get(name))
    if name in _ACCOUNTS:
        like = OURS_TO_497 if direction == OURS_TO_TIANZHOU else direction
        return (
            "not there: 5.3.3 has users; code 3"
            if direction == OURS_TO_533
            else _said(ACCESS_DIFFERENCES[like].get(name))
        )
    parts = [asked.name for asked in COMMANDS if asked.line.split()[0] == name]
    assert parts, name
    whys = dict.fromkeys(DIFFERENCES[direction][part] for part in parts if part in DIFFERENCES[direction])
    return _said("; ".join(whys) or None)


def _apart(name: str) -> str:
    if name in _STATIC:
        return "not there: static topics are not served; code 3"
    if name in _LOCAL:
        return "reads files, asks no cluster"
    if name == "rocksDBConfigToJson":
        return "not there: the store does not use RocksDB; code 3"
    return _ENDLESS


def _said(why: str | None) -> str:
    if why is None:
        return "same"
    return why if why.startswith("not there") else f"not there: {why}" if "not served" in why else f"differs: {why}"


def lines() -> Iterator[str]:
    """The page."""
    yield HEAD
    yield "| sub-command | what it does | " + " | ".join(DIRECTIONS) + " |"
    yield "|---|---|" + "---|" * len(DIRECTIONS)
    for one in every():
        cells = " | ".join(cell(one.name, direction).replace("|", "\\|") for direction in DIRECTIONS)
        yield f"| `{one.name}` | {one.summary} | {cells} |"


def page() -> str:
    """The page as a text."""
    return "\n".join(lines()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
