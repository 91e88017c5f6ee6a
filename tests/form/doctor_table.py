"""Every illness that `tianzhou doctor` knows: docs/howto/doctor.md.

Print the page by `PYTHONPATH=src python tests/form/doctor_table.py > docs/howto/doctor.md`.
"""

from __future__ import annotations

import re

from tianzhou.doctor.findings import Illness
from tianzhou.doctor.registry import BY_SUBJECT

HEAD = """# What ails it? The doctor

`tianzhou doctor` reads a cluster and says in words what is wrong there, by which evidence, and what to do about it. It
changes nothing and sends nothing.

    tianzhou doctor -n 10.0.0.5:9876               # everything but this machine
    tianzhou doctor group billing                  # why is it stuck, or behind?
    tianzhou doctor topic orders                   # why does nothing arrive?
    tianzhou doctor broker                         # disks, copies, leaders, clocks, what piles up
    tianzhou doctor send orders --size 5000000     # why is it refused?
    tianzhou doctor connect                        # why can a client on this machine not connect?
    tianzhou doctor connect 10.0.0.7:10911         # what is there, and what does it want?
    tianzhou doctor spark /data/checkpoints/orders # why does the stream stand still?
    tianzhou doctor host /data/store               # is this machine made for a broker?
    tianzhou doctor access                         # what may strangers do?

A finding looks like this:

    WARNING filter-drops-all: The expression 'paid' of group billing selects none of the newest 8 messages of …
      expression: paid
      expression_type: TAG
      tags_seen: {"Paid": 8}
      fix: Compare the expression with what producers set, tags and properties in capitals and small letters: tianzhou …

The names in the tables below are stable: programs get them by `-o json`, with the evidence as values.

| it ends with | when |
|---|---|
| 0 | no finding is an error; warnings and notes may be there |
| 1 | a finding is an error: something does not work, or messages are lost |
| 2 | it could not look, as no name server answers; or it was called wrongly |

A server that does not answer is a finding and holds nobody up: `--timeout` bounds each question (3 s), a server that
cannot be reached is asked nothing more, and what is not known because of it is said on stderr (`unanswered` with
`-o json`). Brokers of Apache's are read as well; what only ours say (troubles, limits, damage) is then not found.
Requests are signed as every command's are ([access control](access-control.md)); who may only read sees what it may.

The doctor looks at one moment. Rates are those that brokers and members have of their last minute, so wait a minute
after a change. Of a whole cluster it looks at the first 200 topics and groups by name.

All is in English and Chinese: `--lang zh`, and on Chinese pages of the [console](console.md); names and evidence are
the same in both. In Python `tianzhou.doctor.chinese.report_in_chinese(report)`.

For alarms `tianzhou doctor metrics` shows the findings to Prometheus
([monitoring](monitoring.md#what-the-doctor-finds)). From Python:

```python
from tianzhou.admin import Admin
from tianzhou.doctor import diagnose

async with Admin("10.0.0.5:9876") as admin:
    report = await diagnose(admin, "group", "billing")
    print(report.healthy, report.names, report.as_json())
```
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
    "send": "`doctor send` finds what ails brokers too, and with a topic what ails that.",
    "connect": "It connects as a client on this machine would, so run it where the client runs.",
    "spark": "The checkpoint is a folder on this machine; the offsets in it are compared with what brokers have.",
    "host": "With a folder it syncs nine pages there, in a file that has no name and is gone afterwards. Limits are "
    "those of the user that asks: ask as the user of the service, in its container.",
    "access": "Whether a server wants signatures is found by asking it something without one, from here: a machine "
    "on a white list finds it open.",
}


NOT_MADE = {
    "broker-busy": "RocketMQ's brokers say it of the queue before their threads; ours serve a request when they have "
    "read it, and always say 0",
    "page-cache-busy": "RocketMQ's brokers say it of the lock around their log; ours have one thread and no such lock, "
    "and always say 0",
}
"""Illnesses that no test makes, and why; they are proved by values."""
PROVED = """
## How each is proved

For each name a test makes the illness and reads it in the report: on a cluster of its own at loopback, mostly in
virtual time, by stopping a server, flipping a bit of a log, hanging a handler or refusing a slave
(`tests/unit/doctor`, `tests/scenario/test_doctor_of_copies.py`). Some of what is made is not the whole machine:

- *This machine*: limits, compiled functions and packages are those of a process that the test starts. What the kernel
  says of mappings, swap, pages, memory, disks and mounts is read from files in the form of `/proc` and `/sys`, as a
  test may not change the machine. What an interpreter was built with is what its `sysconfig` says; a clock that
  nobody sets, and a sync that is slow, are what the system's calls say to the test.
- Full disks: the system's answer about the disk is the test's; the store that then refuses sends is the broker's own.
- Other machines: a host name that leads to loopback stands for an address that others reach.

Two are proved by values alone:

{rows}"""


def words(text: str) -> str:
    """A sentence whose places are shown in italics; in a cell of a table."""
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
