"""Every sub-command of mqadmin: prints `docs/reference/mqadmin.md`.

The first table comes from the recorded answers of Apache's tool (`tests/golden/apache/mqadmin-lines-5.3.3.json`) and
from `tests/interop/administration/mqadmin_line_differences.py`. The second one comes from `mqadmin_directions.py`.
Tests of `tests/interop` run the tools and prove both.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "mqadmin.md"
LINES = "mqadmin-lines-5.3.3"
"""Name of the recording with Apache's answers."""
sys.path[:0] = [str(ROOT / "tests" / "interop" / "administration"), str(ROOT / "tests" / "interop")]

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
from mqadmin_line_differences import reason  # noqa: E402
from mqadmin_lines import DONE, Outcome, lines, names  # noqa: E402
from recorded import recorded  # noqa: E402

from tianzhou.cli.mqadmin.catalogue import FAMILIES, every  # noqa: E402
from tianzhou.cli.mqadmin.unsupported import UNSUPPORTED  # noqa: E402

HEAD = """# mqadmin, sub-command by sub-command

Every sub-command of Apache's mqadmin, 4.9.7 and 5.3.3, has its own name, flags and columns here: `mqadmin NAME …`
or `tianzhou admin NAME …`. The page is printed by `PYTHONPATH=src python tests/form/mqadmin_table.py`.

## What differs everywhere

- An error is one line, `mqadmin: CODE: 17  DESC: …`, and then the remedy. The exit code is 1 when a server refuses,
  and 2 for a wrong command line. Apache's tool prints a stack trace and ends with 0, or prints the usage and ends
  with 1.
- A word that belongs to no option is ignored, as by Apache's tool, and a warning on stderr names it.
- With `-b` and `-c` together `-b` wins where it does at Apache's tool; a warning names the option that is ignored.
  Where Apache's tool refuses both together, ours does too.
- An offset out of range is refused with the range of the queue, and nothing is changed: `resetOffsetByTime -o`,
  `consumeMessage -o`, `tianzhou offset reset --to`.
- Permissions are 0, 2, 4, 6 and 7, numbers of queues 1 to 65535 (retry queues of a group 0 to 65535). The error for
  another value names the option.
- `--json` (or `--output json`, and `-o json` where mqadmin has no `-o` of its own) prints a JSON document a line.
- `-n` may be left out: `TIANZHOU_NAMESRV`, `NAMESRV_ADDR`, then 127.0.0.1:9876.
- Requests are signed with `TIANZHOU_ACCESS_KEY` and `TIANZHOU_SECRET_KEY`, else with the account of
  `$ROCKETMQ_HOME/conf/tools.yml`, as Apache's are.
- A setting that a broker reads at its start only is refused while the broker runs, where Apache's broker answers
  "success" and changes nothing. `tianzhou config set --at-next-start KEY=VALUE` writes it to the broker's file, and
  it counts from the next start on. Paths and settings of security are set in the file by hand.
- Users and policies can be prepared while `authenticationEnabled` is not set, as at Apache's brokers: set
  `authenticationMetadataProvider` in the broker's configuration file. Without that key the broker keeps no users,
  and the error names the key.
- Static topics, files of RocksDB and controllers are not supported. Their ten sub-commands ask no server: each ends
  with code 3, the reason and the remedy. For a controller of Apache's, use Apache's mqadmin.
- Tianzhou has no broker containers. `addBroker` and `removeBroker` are sent to the address that is given; a broker of
  Tianzhou refuses them with code 3, as one of Apache's does. Their texts are from RocketMQ's source and not compared
  at a container."""
LINES_HEAD = """
## The 89 sub-commands of 5.3.3, line by line

Apache's tool answered {count} command lines at Apache's broker and name server, each sub-command and each option
with good and wrong values (`tests/interop/administration/lines`, `tests/golden/apache/mqadmin-lines-5.3.3.json`).
Every run of the tests gives the same lines to our tool at our servers (`test_mqadmin_lines.py`).

- *same*: our tool prints the same lines and columns and ends with 0. Times, ids, addresses and measured figures are
  left out, and so is the order of Java's hash maps. Of `brokerStatus`, `getBrokerConfig` and `getNamesrvConfig` the
  names of the figures are compared.
- *refused*: both tools refuse the line. Ours has the same code, or none where it refuses a value before it asks a
  server.
- *otherwise*: our tool ends the line in another way; the reason follows.

"""
DIRECTIONS_HEAD = """
## Our tool at other servers, and Apache's tools at ours

*same*: the answers to the lines of `tests/interop/administration/mqadmin_commands.py` are those of Apache's tool,
but for times, ids, measured figures and the order of hash maps. Ours is compared with Apache's 5.3.3 tool at the
same kind of cluster; a tool at Tianzhou with the same tool at Apache's 5.3.3 (accounts of 4.9: 4.9.7 in both
places). Of settings and figures that each server has of its own only the names are compared, of refusals only the
code.

"""
_WORDS = "not supported: code 3, with the reason and the remedy"
_ENDLESS = "runs until it is ended, so not compared"
APART = {
    "clusterRT": _ENDLESS,
    "startMonitoring": _ENDLESS,
    "dumpCompactionLog": "reads a file, asks no cluster",
    **dict.fromkeys(UNSUPPORTED, _WORDS),
}
"""Text for sub-commands outside all conversations, when the tool is ours."""
_STATIC = frozenset({"updateStaticTopic", "remappingStaticTopic"})
_LOCAL = frozenset({"exportMetadataInRocksDB", "dumpCompactionLog"})
_CONTAINERS = frozenset({"addBroker", "removeBroker"})
_CONTROLLERS = frozenset(name for name in UNSUPPORTED if "Controller" in name) | {
    "getSyncStateSet",
    "electMaster",
    "cleanBrokerMetadata",
}
_ACCESS = frozenset(FAMILIES["users"].split())
_ACCOUNTS = frozenset(FAMILIES["accounts"].split())


def cell(name: str, direction: str) -> str:
    """Return the text for a sub-command in a direction."""
    if direction == APACHE_497 and name in NOT_IN_497:
        return "not in 4.9.7"
    if direction == APACHE_533 and name in ONLY_IN_497:
        return "not in 5.3.3"
    theirs = direction in (APACHE_497, APACHE_533)
    if name == "getBrokerEpoch" and direction == OURS_TO_533:
        return "same, with a controller too"
    if name in _CONTAINERS or (name in _CONTROLLERS and theirs):
        where = "; not compared at a container" if direction == OURS_TO_533 else ""
        return f"refused with code 3 by a broker, which is no controller and no container{where}"
    if name in APART:
        return _apart(name) if theirs else APART[name]
    if name == "copyUser" and direction == APACHE_533:
        return "same words, and nothing is copied: Tianzhou's brokers never show a password"
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


def line_rows() -> Iterator[str]:
    """Yield the rows of the table of command lines: one for each sub-command of 5.3.3."""
    records = recorded(LINES, names())
    for one in every():
        same, refused, otherwise = 0, 0, Counter[str]()
        for name, line in zip(names(), lines(), strict=True):
            if line.command != one.name:
                continue
            why = reason(line)
            if why is not None:
                otherwise[why] += 1
            elif Outcome.of_record(records[name]).kind == DONE:
                same += 1
            else:
                refused += 1
        if same or refused or otherwise:
            whys = "; ".join(f"{count}: {why}" for why, count in otherwise.items())
            yield f"| `{one.name}` | {one.summary} | {same} | {refused} | {whys} |"


def page() -> str:
    """Return the page as a text."""
    rows = [HEAD, "", LINES_HEAD.format(count=len(lines())).strip("\n"), ""]
    rows += ["| sub-command | what it does | same | refused | otherwise |", "|---|---|---|---|---|", *line_rows()]
    rows += ["", DIRECTIONS_HEAD.strip("\n"), "", "| sub-command | " + " | ".join(DIRECTIONS) + " |"]
    rows.append("|---|" + "---|" * len(DIRECTIONS))
    for one in every():
        cells = " | ".join(cell(one.name, direction).replace("|", "\\|") for direction in DIRECTIONS)
        rows.append(f"| `{one.name}` | {cells} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
