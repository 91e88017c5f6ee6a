"""Every JSON body in the recorded frames decodes; those this package makes as well come out byte for byte."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tianzhou.wire import bodies, json_dialect

FOLDER = Path(__file__).parents[1] / "golden" / "wire"


class Body(NamedTuple):
    peer: str
    code: int
    direction: str
    version: int
    fields: dict[str, str]
    data: bytes


def header_of(frame: bytes) -> tuple[dict[str, Any], bytes]:
    size = int.from_bytes(frame[5:8], "big")
    header = json.loads(frame[8 : 8 + size]) if frame[4] == 0 else {}
    return header, frame[8 + size :]


@cache
def json_bodies() -> list[Body]:
    found = []
    for file in sorted(FOLDER.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            frame = json.loads(line)
            if "hex" not in frame:
                continue
            header, data = header_of(bytes.fromhex(frame["hex"]))
            if data[:1] in (b"{", b"["):
                code = frame.get("reqCode", frame["code"])
                found.append(
                    Body(
                        file.stem,
                        code,
                        frame["dir"],
                        header.get("version", 0),
                        header.get("extFields") or {},
                        data,
                    )
                )
    return found


def is_standard(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


Codec = tuple[Callable[[bytes], Any], Callable[[Any, Body], bytes]]


def codec(noun: str, encode_name: str | None = None) -> Codec:
    encode = getattr(bodies, encode_name or f"encode_{noun}")
    return getattr(bodies, f"decode_{noun}"), lambda value, _body: encode(value)


CODECS: dict[tuple[int, str], Codec] = {
    (28, "resp"): codec("kv_table"),
    (34, "req"): codec("heartbeat"),
    (38, "resp"): codec("consumer_ids"),
    (41, "req"): codec("lock_request"),
    (41, "resp"): codec("locked_queues"),
    (42, "req"): codec("lock_request"),
    (46, "req"): codec("client_config_check"),
    (103, "req"): (
        bodies.decode_register_body,
        lambda value, body: bodies.encode_register_body(value, version=body.version),
    ),
    (105, "resp"): (
        bodies.decode_route,
        lambda value, body: bodies.encode_route(value, standard=is_standard(body.data)),
    ),
    (106, "resp"): codec("cluster_info"),
    (200, "req"): codec("subscription_group"),
    (201, "resp"): codec("subscription_group_table"),
    (202, "resp"): codec("topic_stats"),
    (203, "resp"): codec("consumer_connection"),
    (204, "resp"): codec("producer_connection"),
    (206, "resp"): (bodies.decode_topic_list, lambda value, _: bodies.encode_topic_list(value.topic_list)),
    (208, "resp"): codec("consume_stats"),
    (222, "resp"): codec("offset_table"),
    (300, "resp"): codec("group_list"),
    (307, "resp"): codec("running_info"),
    (315, "resp"): codec("broker_stats"),
    (317, "resp"): codec("broker_consume_stats"),
    (321, "resp"): codec("queue_units"),
    (328, "resp"): codec("producer_table"),
    (351, "resp"): codec("topic_config"),
    (400, "req"): codec("assignment_query"),
    (400, "resp"): codec("assignments"),
    (401, "req"): codec("message_request_mode"),
}


def test_every_body_is_read_and_written_again_by_the_dialect() -> None:
    assert len(json_bodies()) > 400
    for body in json_bodies():
        value = json_dialect.loads(body.data)
        dump = json_dialect.dumps_standard if is_standard(body.data) else json_dialect.dumps
        # C++ clients end their bodies with a line feed.
        assert dump(value, sort_keys=False) == body.data.rstrip(b"\n"), body


def test_every_body_survives_decoding_and_encoding() -> None:
    for body in json_bodies():
        if (body.code, body.direction) in CODECS:
            decode, encode = CODECS[body.code, body.direction]
            value = decode(body.data)
            assert decode(encode(value, body)) == value, body


# Members 4.9 does not send; readers of either version accept both forms, so there is one encoder.
NEW_MEMBERS = re.compile(
    rb'"heartbeatFingerprint":0,|,"withoutSub":false|,"onlyThisBroker":false|,"enableActingMaster":false'
)


CPP_ORDINALS = {
    "CONSUME_FROM_LAST_OFFSET": 0,
    "CONSUME_FROM_FIRST_OFFSET": 4,
    "CONSUME_ACTIVELY": 0,
    "CONSUME_PASSIVELY": 1,
    "BROADCASTING": 0,
    "CLUSTERING": 1,
}


def has_members(value: Any, wanted: Any) -> bool:
    """Whether `value` has all of `wanted`, texts of numbers counting as numbers."""
    if isinstance(wanted, dict):
        return all(has_members(value.get(key), member) for key, member in wanted.items())
    if isinstance(wanted, list):
        if all(isinstance(w, (str, int)) for w in wanted):
            return {str(v) for v in value} == {str(w) for w in wanted}
        return len(value) == len(wanted) and all(has_members(v, w) for v, w in zip(value, wanted, strict=True))
    return str(value) == str(wanted) or CPP_ORDINALS.get(value) == wanted


def test_bodies_come_out_byte_for_byte() -> None:
    outcome: Counter[str] = Counter()
    for body in json_bodies():
        if (body.code, body.direction) not in CODECS:
            outcome[f"no encoder for {body.code}"] += 1
            continue
        decode, encode = CODECS[body.code, body.direction]
        result = encode(decode(body.data), body)
        if result == body.data:
            outcome["same bytes"] += 1
        elif NEW_MEMBERS.sub(b"", result) == body.data:
            assert "4.9.7" in body.peer
            outcome["same bytes but for members 4.9 does not have"] += 1
        else:
            assert has_members(json_dialect.loads(result), json_dialect.loads(body.data)), body
            outcome[f"members in an order of its own: {body.peer.split('-')[0]} {body.code}"] += 1
    assert outcome == {
        "same bytes": 334,
        "same bytes but for members 4.9 does not have": 81,
        "members in an order of its own: cpp 34": 7,
        "members in an order of its own: cpp 41": 5,
        "members in an order of its own: cpp 42": 1,
        "members in an order of its own: go 34": 9,
        "members in an order of its own: java 200": 1,
        "members in an order of its own: java 401": 1,
        # Static topics, controllers, cold data and ACL are carried as plain JSON values.
        "no encoder for 513": 1,
        "no encoder for 907": 1,
        "no encoder for 2003": 1,
        "no encoder for 3001": 1,
        "no encoder for 3005": 1,
        "no encoder for 3006": 1,
        "no encoder for 3010": 1,
    }
