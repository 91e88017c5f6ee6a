"""The reference of all findings of `tianzhou doctor`: docs/reference/findings.md.

Print the page by `PYTHONPATH=src python tests/form/doctor_table.py > docs/reference/findings.md`.
"""

from __future__ import annotations

import re

from tianzhou.doctor.findings import Illness
from tianzhou.doctor.registry import BY_SUBJECT

HEAD = """# Findings of the doctor

`tianzhou doctor` ([how to](../howto/doctor.md)) reports these findings. The names are stable: `-o json` has them in
`name`. A word in italics stands in a report as the value that the doctor read.
"""
TITLES = {
    "group": "Consumer groups",
    "topic": "Topics",
    "broker": "Brokers and name servers",
    "send": "Sends",
    "connect": "Connections",
    "spark": "Streams of Spark's",
    "host": "This machine",
    "access": "Who may do what",
}
NOTES = {
    "send": "`doctor send` also reports findings of brokers, and with a topic the findings of this topic.",
    "connect": "The command connects as a client on this machine does. Run it on the machine of the client.",
    "spark": "The checkpoint is a folder on this machine. The doctor compares its offsets with those of the brokers.",
    "host": "With a folder the doctor syncs nine pages in an unnamed temporary file there. Limits are those of the "
    "user that runs the command: run it as the user of the service, in its container.",
    "access": "The doctor sends each server a request without a signature, from this machine, and reads the reply. A "
    "server serves a machine on its white list in any case, so such a machine finds it open.",
}


NOT_MADE = {
    "broker-busy": "RocketMQ's brokers report the length of the queue before their threads. Tianzhou's serve a request "
    "when they have read it, and always report 0",
    "page-cache-busy": "RocketMQ's brokers report the time of the lock around their log. Tianzhou's have one thread "
    "and no such lock, and always report 0",
}
"""Findings that no test causes, and why; tests build them from values."""
PROVED = """
## How each finding is tested

For each name a test causes the problem and reads the name in the report. The cluster runs at loopback, mostly in
virtual time. The test stops a server, flips a bit of a log, blocks a handler or refuses a slave (`tests/unit/doctor`,
`tests/scenario/test_doctor_of_copies.py`). A test cannot change the whole machine, so some causes are simulated:

- *This machine*: limits, compiled functions and packages are those of a process that the test starts. Mappings, swap,
  pages, memory, disks and mounts are read from files in the form of `/proc` and `/sys`. Build options of the
  interpreter come from its `sysconfig`. The test replaces the system calls for a clock that is not synchronised and
  for a slow sync.
- Full disks: the test replaces the system's figure of free space. The store that then refuses sends is the broker's
  own.
- Other machines: a host name that resolves to loopback replaces an address that other machines reach.

Tests build two findings from values alone:

{rows}"""


def words(text: str) -> str:
    """Return a sentence for a table cell, with its placeholders in italics."""
    return re.sub(r"\{(\w+)[^}]*\}", lambda found: f"*{found[1].replace('_', ' ')}*", text).replace("|", "\\|")


def row(one: Illness) -> str:
    return f"| `{one.name}` | {one.severity} | {words(one.means)} | {words(one.fix)} |"


def page() -> str:
    parts = [HEAD]
    for subject, illnesses in BY_SUBJECT.items():
        note = f"{NOTES[subject]}\n\n" if subject in NOTES else ""
        rows = "\n".join(map(row, illnesses))
        head = "| name | severity | what it means | what to do |\n|---|---|---|---|"
        parts.append(f"\n## {TITLES[subject]}\n\n{note}{head}\n{rows}\n")
    parts.append(PROVED.format(rows="".join(f"- `{name}`: {why}.\n" for name, why in NOT_MADE.items())))
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
