"""Records of the trace topic, read for one message (wire.md §13). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_FIELD, _RECORD = "\x01", "\x02"
_PUB_FIELDS, _PUB_WITH_HOST = 13, 15
Traced = dict[str, Any]


def read_traces(bodies: Iterable[tuple[bytes, str]], msg_id: str) -> tuple[list[Traced], list[Traced]]:
    """Who sent a message, and who consumed it.

    Args:
        bodies: of messages of the trace topic, and where each of them was sent from.
        msg_id: the unique key of the message.

    Returns:
        Sends, and consumptions in the order of their beginning. Records of other messages and broken ones are left out.
    """
    published: list[Traced] = []
    begun: dict[str, Traced] = {}
    for body, host in bodies:
        for record in body.decode("utf-8", "replace").split(_RECORD):
            fields = record.split(_FIELD)
            if fields[0] == "Pub" and len(fields) >= _PUB_FIELDS and fields[5] == msg_id:
                published.append(_published(fields, host))
            elif fields[0] == "SubBefore" and len(fields) > 7 and fields[5] == msg_id:
                begun.setdefault(fields[4], {}).update(
                    type="Sub", group=fields[3], client_host=_host(fields, 8, host), time=_number(fields[1])
                )
            elif fields[0] == "SubAfter" and len(fields) > 4 and fields[2] == msg_id:
                begun.setdefault(fields[1], {}).update(cost=_number(fields[3]), status=_status(fields[4]))
    unknown = {"type": "Sub", "group": "", "client_host": "", "time": 0, "cost": 0, "status": "unknown"}
    return published, sorted((unknown | one for one in begun.values()), key=lambda one: int(one["time"]))


def _published(fields: Sequence[str], host: str) -> Traced:
    offset_id = len(fields) > _PUB_FIELDS
    return {
        "type": "Pub",
        "group": fields[3],
        "client_host": _host(fields, _PUB_WITH_HOST - 1, host),
        "time": _number(fields[1]),
        "cost": _number(fields[10]),
        "status": _status(fields[13] if offset_id else fields[12]),
        "topic": fields[4],
        "keys": fields[7],
        "store_host": fields[8],
    }


def _host(fields: Sequence[str], place: int, otherwise: str) -> str:
    return fields[place] if len(fields) > place and fields[place] not in ("", "null") else otherwise


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _status(text: str) -> str:
    return "success" if text == "true" else "failed"
