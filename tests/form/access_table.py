"""The permissions of an account that each request needs: the page docs/reference/access.md.

Rows come from `tianzhou.access.needs`; this file has their wording. Print the page by
`PYTHONPATH=src python tests/form/access_table.py > docs/reference/access.md`.
"""

from __future__ import annotations

from pathlib import Path

from tianzhou.access.needs import ACCOUNT, ADMIN, ROWS
from tianzhou.wire.codes import DLedgerRequestCode, RequestCode

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "access.md"

BODIES: dict[int, str] = {
    18: "every topic in the body",
    34: "every consumer group in the body, and every topic it subscribes",
    41: "the group in the body, and the topics of its queues",
    42: "the group in the body, and the topics of its queues",
    200: "the group in the body",
    225: "every group in the body",
    31002: "every topic of the messages",
    31003: "the writer in the body",
    31004: "the writer in the body",
    31005: "the writer in the body",
    31006: "the writer in the body",
}
"""Meaning of `body` in a row, by request code."""
_WORDS = {ACCOUNT: "any account", ADMIN: "administrator"}


def needed(code: int, text: str) -> str:
    """Return the text of one side of a row."""
    return _WORDS.get(text) or ", ".join(_part(code, part) for part in text.split(", "))


def _part(code: int, part: str) -> str:
    words, _, field = part.partition(" ")
    if words == "Cluster":
        return f"{field} on the cluster"
    words = words.replace("|", " or ")
    if field == "body":
        return f"{words} on {BODIES[code]}"
    kind, name = ("group", field[1:]) if field.startswith("@") else ("topic", field)
    if name[-1] in ",;":
        return f"{words} on each {kind} in `{name[:-1]}`"
    return f"{words} on the {kind} `{name}`"


def names() -> dict[int, str]:
    """Return every request code and its name."""
    found = {int(code): code.name for code in RequestCode}
    return found | {int(code): f"members: {code.name}" for code in DLedgerRequestCode}


def page() -> str:
    """Return the text of docs/reference/access.md."""
    lines = [
        "# What a request needs",
        "",
        "With `aclEnable` (accounts of RocketMQ 4.x) or `authorizationEnabled` (users and policies of 5.3) every",
        "request is compared with this table before its handler sees it. Names in code are header fields; `or` means",
        "that one of the actions is enough; what is separated by commas is needed together. A field that a request",
        "does not have needs nothing; where nothing at all is named that has to be, an administrator is needed (5.3:",
        "the actions of the row on the cluster). A code that is not listed needs an administrator, and the action All",
        "on the cluster. That a server does not serve a code is told to every account, and to nobody else. Requests",
        "for messages by their place (33, 36, 37) need what the topic of the message needs, whatever topic they name.",
        "Name servers answer look-ups (105, 106, 206, 224, 304, 311 to 313) to every peer, as Apache's do; their rows",
        "count with `requireSignedLookups=true`. For a route (105) one of the actions is enough even where a policy",
        "denies another one.",
        "",
        "A retry topic (`%RETRY%` and a group) is its group, wherever a topic is named: sending to it, reading it and",
        "subscribing it need SUB on the group. 4.x stores permissions of groups under that name. A dead-letter topic",
        "is a topic. The cluster is the server's own, whatever a request names. Topics and light queues in a message's",
        "property `INNER_MULTI_DISPATCH`, which it is put into as well, need what its own topic needs, and sending to",
        "a retry topic needs its group, whatever group the request names as its sender's: Apache's servers look at",
        "neither. A writer of batches that are published exactly once is a group by the name of the writer.",
        "",
        "Entries of the KV configuration that name which broker decides for such writers (`TIANZHOU_STAGING`,",
        "`coordinator-0` and on) are put (100) with SUB on the group `TIANZHOU_STAGING` (5.3: that, or Update on",
        "the cluster), and read (101) by any account. Name servers replace none of them; deleting one (102) needs an",
        "administrator. Users of 5.3 put the order of an ordered topic (`ORDER_TOPIC_CONFIG`, 100) with Create or",
        "Update on the topic, and delete it (102) with Delete or Update. All other entries go by the table.",
        "",
        "Whatever clients ask by themselves needs an account only: the routes (105) of `TBW102`, which producers of",
        "topics that are yet to be made want, and of the cluster's reply topic; the name `RMQ_SYS_TRANS_HALF_TOPIC` in",
        "the end of a transaction, which Java's clients copy from the question. Traces are sent to",
        "`RMQ_SYS_TRACE_TOPIC`: every account of 4.x may, a user of 5.3 needs Pub on it, as in RocketMQ.",
        "",
        "Delayed, half and staged messages of all topics, and replies to all clients, are in topics of the system",
        "(`SCHEDULE_TOPIC_XXXX`, `RMQ_SYS_TRANS_HALF_TOPIC`, `<cluster>_REPLY_TOPIC` and others). Reading these (11,",
        "12, 33, 36, 361) needs an administrator, and the action All on the cluster, besides the topic: whoever may",
        "read all topics but one would find its messages there. What is done with a message that a request names by",
        "its place (33, 36, 37) needs the topic that the message is of, whatever topic the request names.",
        "",
        "The last column says where Apache's servers want less, and why ours want more. The page is printed by",
        "`PYTHONPATH=src python tests/form/access_table.py`.",
        "",
        "| code | name | 4.x | 5.3 | stricter because |",
        "|---|---|---|---|---|",
    ]
    known = names()
    for code in sorted(ROWS):
        row = ROWS[code]
        name = known.get(code, "")
        lines.append(f"| {code} | {name} | {needed(code, row.plain)} | {needed(code, row.policy)} | {row.differs} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
