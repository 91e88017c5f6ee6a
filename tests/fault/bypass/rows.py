"""Attempts to get around access control, and their outcomes: the rows of docs/reference/bypass.md.

This file has no tests: test_access_bypass.py runs the rows at servers with accounts of 4.x and at servers with users of
5.3, and `PYTHONPATH=src:tests/fault python -m bypass.rows` prints the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from bypass.requests import FORGED, PORTS, REQUESTS
from bypass.stage import (
    CLOSED,
    PASSWORDS,
    PULL,
    REFUSED,
    ROOT_USER,
    SEND,
    SERVED,
    SHORT,
    SILENT,
    Attempt,
    Elsewhere,
    Outcome,
    Section,
    Stage,
    asked,
    binary_frame,
    frame,
    framed,
    json_frame,
    sent,
    signed,
)

from tianzhou.access.signatures import signature
from tianzhou.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "bypass.md"

ORDERS = SHORT | {"b": "orders"}
MADE = signed(ORDERS, b"x")
"""A permitted send to `orders`."""
_REPLAY = "as with RocketMQ: nothing in a signature says when, where or for what it was made; TLS keeps it from others"
_LAST = "the last one is signed, checked and used"
_GOOD = frame(310, MADE, b"x")
_SECOND = f"{SERVED}, {REFUSED}"
_DISPATCHED = signed(ORDERS | {"i": "INNER_MULTI_DISPATCH\x01secret\x02"}, b"x")


def _query_of_an_old_client() -> bytes:
    query = {"topic": "orders", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"}
    fields = signed(query) | {"_UNIQUE_KEY_QUERY": "true", "topic": "secret"}
    return frame(12, fields, version=300)


def _moved() -> bytes:
    fields = signed({"a": "xy"})
    return frame(304, fields | {"a": "x", "b": "y"})


def _captured(stage: Stage) -> Outcome:
    data = frame(304, signed({}))
    stage.sends(data, "namesrv")
    return stage.sends(data, "namesrv")


def _as_root() -> dict[str, str]:
    """Return fields signed in the administrator's name with the worker's secret."""
    fields = ORDERS | {"AccessKey": ROOT_USER}
    return fields | {"Signature": signature(fields, b"x", PASSWORDS["worker-a"])}


SIGNATURES: Section = (
    sent("no signature", frame(310, ORDERS, b"x")),
    sent("an account's name, and no signature", frame(310, ORDERS | {"AccessKey": ROOT_USER}, b"x")),
    sent("a signature with another account's secret", frame(310, _as_root(), b"x")),
    sent("a signature of another body", frame(310, MADE, b"y")),
    sent("a signature of other fields", frame(310, MADE | {"b": "secret"}, b"x")),
    sent("the same in a binary header", frame(310, MADE | {"b": "secret"}, b"x", binary=True)),
    sent("a field more than was signed", frame(310, MADE | {"zz": "1"}, b"x")),
    sent("a query with a mark that old clients do not sign, and another topic", _query_of_an_old_client()),
    sent("a signature in other letters", frame(310, MADE | {"Signature": MADE["Signature"].swapcase()}, b"x")),
    sent("an empty signature", frame(310, MADE | {"Signature": ""}, b"x")),
    Attempt("a captured request on another connection", _captured, SERVED, _REPLAY),
    sent("a captured request under another code that its account may use as well",
        frame(105, signed({"topic": "orders"})), SERVED, _REPLAY, "namesrv"),
    sent("a captured request under a code that its account may not use",
        frame(216, signed({"topic": "orders"})), to="namesrv"),
    sent("values of a captured request moved into other fields", _moved(), SERVED,
        _REPLAY + "; what its account may not is still refused", "namesrv"),
    sent("a request like one just allowed, with another body", _GOOD + frame(310, MADE, b"y"), _SECOND),
    sent("a request like one just allowed, put into a further topic", _GOOD + frame(310, _DISPATCHED, b"x"), _SECOND),
    sent("a request like one just allowed, of another account",
        _GOOD + frame(310, MADE | {"AccessKey": "leaver-a"}, b"x"), _SECOND),
    Elsewhere("guessing a signature by the time its comparison takes", "compared in constant time",
        "tests/unit/access/test_signatures.py::test_signatures_are_compared_in_constant_time"),
)  # fmt: skip

_KEYS = {
    "empty": "", "of blanks": "  ", "of 60 000 characters": "a" * 60_000, "not of ASCII": "管理員",
    "with a blank behind it": ROOT_USER + " ", "in capitals": ROOT_USER.upper(), "with a zero byte": ROOT_USER + "\0",
    "with its type": "User:" + ROOT_USER, "`*`": "*", "of look-alike letters": "\u0430dministrator",
    "of 1 MB": "a" * (1 << 20),
}  # fmt: skip


def _under(key: str) -> bytes:
    # Built here, because the codec makes no headers of this length.
    return json_frame(310, [*(MADE | {"AccessKey": key}).items()], b"x")


def _in_small_letters() -> dict[str, str]:
    return {name.lower() if name in ("AccessKey", "Signature") else name: value for name, value in MADE.items()}


ACCOUNTS: Section = (
    *(sent(f"`AccessKey` {words}", _under(key)) for words, key in _KEYS.items()),
    sent("`accesskey` and `signature` in small letters", frame(310, _in_small_letters(), b"x")),
)


def _twice(make: Callable[..., bytes], first: str) -> bytes:
    return make(
        310, [("b", first), *((name, value) for name, value in MADE.items() if name != "b"), ("b", "orders")], b"x"
    )


def _outside(fields: Mapping[str, str]) -> str:
    return "".join(f"{json.dumps(name)}:{json.dumps(value)}," for name, value in fields.items())


def _escaped() -> bytes:
    data = json_frame(310, [*MADE.items()], b"x")
    header = data[8 : 8 + int.from_bytes(data[5:8], "big")]
    return framed(header.replace(b'"Signature"', b'"Signatur\\u0065"').replace(b'"b"', b'"\\u0062"'), b"x", 0)


_HALF = b'{"code":310,"extFields":{"a":"\\ud800","b":"secret","AccessKey":"x","Signature":"y"},"flag":0,"opaque":1}'
_SECRET = signed(SHORT, b"x")
HEADERS: Section = (
    sent("a topic twice in a JSON header, the last not what was signed",
        json_frame(310, [*MADE.items(), ("b", "secret")], b"x")),
    sent("a topic twice in a binary header, the last not what was signed",
        binary_frame(310, [*MADE.items(), ("b", "secret")], b"x")),
    sent("a topic twice in a JSON header, the last what was signed", _twice(json_frame, "secret"), SERVED, _LAST),
    sent("a topic twice in a binary header, the last what was signed", _twice(binary_frame, "secret"), SERVED, _LAST),
    sent("`extFields` twice, the last unsigned",
        json_frame(310, [*MADE.items()], b"x", f'"extFields":{json.dumps(SHORT)},')),
    sent("a code twice, the last a deletion", json_frame(310, [*MADE.items()], b"x", '"code":215,')),
    asked("full and short names together, the full one `orders`", 310, SHORT | {"topic": "orders"}, b"x"),
    asked("full and short names together, the short one `orders`", 10, SEND | {"b": "orders"}, b"x"),
    sent("names outside of `extFields`", json_frame(310, [*_SECRET.items()], b"x", '"b":"orders","topic":"orders",')),
    sent("a signature outside of `extFields`", json_frame(310, [*ORDERS.items()], b"x",
        _outside({name: MADE[name] for name in ("AccessKey", "Signature")}))),
    sent("names of fields spelled with escapes", _escaped(), SERVED, "read as what they spell: `orders`"),
    sent("half a surrogate pair", framed(_HALF, b"x", 0), CLOSED),
    sent("an old version", frame(310, ORDERS, b"x", version=0)),
    sent("a binary header without signature", frame(310, SHORT, b"x", binary=True)),
)  # fmt: skip


def _cut_everywhere(stage: Stage) -> Outcome:
    data = frame(11, PULL)
    found = set()
    for at in range(1, len(data)):
        with stage.connect() as peer:
            peer.sendall(data[:at])
            found.add(stage.talk(peer, data[at:]))
    return ", ".join(sorted(found))


def _byte_by_byte(stage: Stage) -> Outcome:
    with stage.connect() as peer:
        data = frame(310, SHORT, b"x")
        for at in range(len(data) - 1):
            peer.sendall(data[at : at + 1])
        return stage.talk(peer, data[-1:])


_UNSIGNED = frame(310, SHORT, b"x")
FRAMES: Section = (
    sent("an unsigned request before a signed one in one write", _UNSIGNED + _GOOD,
        f"{REFUSED}, {SERVED}"),
    sent("an unsigned request behind one that was refused", _UNSIGNED * 2, f"{REFUSED}, {REFUSED}"),
    Attempt("an unsigned pull cut at each of its bytes", _cut_everywhere),
    Attempt("an unsigned send byte by byte", _byte_by_byte),
    sent("a request in the body of a signed one", frame(46, signed({}, _UNSIGNED), _UNSIGNED), "code 1",
        "it is no body of the outer request"),
    sent("a one-way send without signature", frame(310, SHORT, b"x", flag=FLAG_ONEWAY), SILENT, "dropped and counted"),
    sent("a one-way send to a topic the account may not send to", frame(310, _SECRET, b"x", flag=FLAG_ONEWAY), SILENT,
        "dropped and counted"),
    sent("a request with the flag of a response", frame(310, SHORT, b"x", flag=FLAG_RESPONSE), SILENT,
        "taken for an answer to nothing"),
    sent("a request with both flags", frame(310, SHORT, b"x", flag=FLAG_ONEWAY | FLAG_RESPONSE), SILENT,
        "taken for an answer to nothing"),
    sent("a request with flags nobody knows", frame(310, SHORT, b"x", flag=0x7FFFFFF0)),
)  # fmt: skip

SECTIONS: Mapping[str, Section] = {
    "Signatures": SIGNATURES, "Names of accounts": ACCOUNTS, "Headers": HEADERS, "Frames": FRAMES,
    "Requests": REQUESTS, "Addresses, ports and certificates": PORTS, "Forged answers": FORGED,
}  # fmt: skip


def attempts() -> list[Attempt]:
    """Return all attempts at servers of both kinds."""
    return [row for rows in SECTIONS.values() for row in rows if isinstance(row, Attempt)]


def elsewhere() -> list[Elsewhere]:
    """Return all attempts in other tests."""
    return [row for rows in SECTIONS.values() for row in rows if isinstance(row, Elsewhere)]


def page() -> str:
    """Return the text of docs/reference/bypass.md."""
    lines = [
        "# Attempts to get around access control",
        "",
        "Each attempt is made at a broker and a name server with accounts of 4.x (`aclEnable`), and once more with",
        "users and policies of 5.3, by `tests/fault/hostile_peers/test_access_bypass.py` where no other test is named.",
        "Who attempts is an account that may send to `orders` and consume it with the group `billing`, unless the row",
        "says otherwise; what it is after is the topic `secret`. After each attempt `secret` has no message more, and",
        "no answer had its message in it. *Refused* is code 1 (4.x) or 16 (5.3), and nothing of what was asked for is",
        "done. What access control leaves open is in the [threat model](threat-model.md).",
        "",
        "The page is printed by `PYTHONPATH=src:tests/fault python -m bypass.rows`.",
    ]
    for title, rows in SECTIONS.items():
        lines += ["", f"## {title}", "", "| attempt | what comes of it | |", "|---|---|---|"]
        for row in rows:
            notes = [row.note, f"`{row.test}`" if isinstance(row, Elsewhere) else ""]
            lines.append("| " + " | ".join((row.what, row.outcome, "; ".join(filter(None, notes)))) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
