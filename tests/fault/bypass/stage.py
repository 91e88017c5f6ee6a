"""Attackers of access control, their frames, and the outcomes; the attempts are in rows.py."""

from __future__ import annotations

import itertools
import json
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tianzhou.access.signatures import signature
from tianzhou.wire import command as wire
from tianzhou.wire.codes import FLAG_RESPONSE
from tianzhou.wire.command import Command

ANSWER_LIMIT_S = 10

ROOT_USER: Final = "administrator"
WORKER: Final = "worker-a"
"""Account that may send to `orders`, and consume it with the group `billing`."""
READER: Final = "reader-a"
"""Account that may send to and consume all topics with all groups, except for the topic `secret`."""
LEAVER: Final = "leaver-a"
"""Account with the worker's permissions, until it is deleted."""
PASSWORDS: Final = {name: f"{name}-secret" for name in (ROOT_USER, WORKER, READER, LEAVER)}
CROWN: Final = b"the crown jewels"
"""The message of `secret`, which no attempt may reveal."""
REFUSED, CLOSED, SILENT, SERVED = "refused", "connection closed", "no answer", "served"
UNKNOWN: Final = "code 3"
"""REQUEST_CODE_NOT_SUPPORTED."""

Outcome = str
Fields = dict[str, str]
SEND: Final[Fields] = {
    "producerGroup": "g", "topic": "secret", "defaultTopic": "TBW102", "defaultTopicQueueNums": "1", "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": "", "reconsumeTimes": "0", "unitMode": "false",
    "batch": "false",
}  # fmt: skip
SHORT: Final[Fields] = dict(zip("abcdefghijkm", SEND.values(), strict=True))
PULL: Final[Fields] = {
    "consumerGroup": "billing", "topic": "secret", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip
KEY: Final[Fields] = {
    "topic": "secret", "key": "jewel", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1),
}  # fmt: skip


def signed(fields: Mapping[str, str], body: bytes = b"", who: str = WORKER) -> Fields:
    """Return fields with the signature of an account."""
    found = {**fields, "AccessKey": who}
    return found | {"Signature": signature(found, body, PASSWORDS[who])}


def frame(
    code: int, fields: Mapping[str, str], body: bytes = b"", *, binary: bool = False, flag: int = 0, version: int = 479,
    opaque: int = 1,
) -> bytes:  # fmt: skip
    """Return an encoded request."""
    return wire.encode(Command(code, opaque, flag, 0, version, None, dict(fields), body, serialize_type=int(binary)))


def json_frame(code: int, pairs: list[tuple[str, str]], body: bytes = b"", more: str = "") -> bytes:
    """Return a request with a JSON header, in which a field may occur twice."""
    fields = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs)
    header = f'{{"code":{code},"extFields":{{{fields}}},"flag":0,"language":"JAVA","opaque":1,{more}"version":479}}'
    return framed(header.encode(), body, 0)


def binary_frame(code: int, pairs: list[tuple[str, str]], body: bytes = b"") -> bytes:
    """Return a request with a binary header, in which a field may occur twice."""
    parts = [
        struct.pack(">h", len(name)) + name + struct.pack(">i", len(value)) + value
        for name, value in ((name.encode(), value.encode()) for name, value in pairs)
    ]
    header = struct.pack(">hBhiiii", code, 0, 479, 1, 0, 0, sum(map(len, parts))) + b"".join(parts)
    return framed(header, body, 1)


def framed(header: bytes, body: bytes, kind: int) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


@dataclass
class Stage:
    """Servers under attack.

    Attributes:
        kind: `4.x` or `5.3`.
        ports: by their names: broker, fast, namesrv.
        secret_place: log offset of the message of `secret`.
        half: log offset and queue offset of a half message of `secret`, of the producer group `owner`.
        remove: deletes an account.
    """

    kind: str
    ports: Mapping[str, int]
    secret_place: int
    half: tuple[int, int]
    remove: Callable[[str], None]
    bodies: list[bytes] = field(default_factory=list)

    def connect(self, to: str = "broker") -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.ports[to]), ANSWER_LIMIT_S)
        peer.settimeout(ANSWER_LIMIT_S)
        return peer

    def sends(self, data: bytes, to: str = "broker") -> Outcome:
        """Return the outcome of bytes on a new connection."""
        with self.connect(to) as peer:
            return self.talk(peer, data, to)

    def asks(
        self, code: int, fields: Mapping[str, str] = {}, body: bytes = b"", *, who: str = WORKER, to: str = "broker"
    ) -> Outcome:
        """Return the outcome of a request signed by an account."""
        with self.connect(to) as peer:
            peer.sendall(frame(code, signed(fields, body, who), body))
            return self._word(next(replies(peer)))

    def talk(self, peer: socket.socket, data: bytes, to: str = "broker") -> Outcome:
        """Return the outcome of bytes on a connection; a final request of the administrator shows that all
        were served.
        """
        code, fields = (304, {}) if to == "namesrv" else (46, {})
        try:
            peer.sendall(data + frame(code, signed(fields, who=ROOT_USER), opaque=LAST))
            found = [self._word(reply) for reply in itertools.takewhile(lambda one: one.opaque != LAST, replies(peer))]
        except ConnectionError:
            return CLOSED
        return ", ".join(found) or SILENT

    def _word(self, reply: Command) -> Outcome:
        self.bodies.append(bytes(reply.body))
        if reply.flag & FLAG_RESPONSE == 0:
            return f"asked {reply.code}"
        denied = "AclException: " in (reply.remark or "") or reply.code == 16
        return REFUSED if denied else SERVED if reply.code == 0 else f"code {reply.code}"


LAST: Final = 0x7FFF0001


def replies(peer: socket.socket) -> Iterator[Command]:
    """Yield the commands that arrive on a connection; raise ConnectionError when it ends."""
    data = b""
    while True:
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            piece = peer.recv(65_536)
            if not piece:
                raise ConnectionResetError
            data += piece
        size = 4 + int.from_bytes(data[:4], "big")
        yield wire.decode(data[4:size])
        data = data[size:]


class Attempt(NamedTuple):
    """One attempt."""

    what: str
    act: Callable[[Stage], Outcome]
    outcome: Outcome = REFUSED
    note: str = ""


class Elsewhere(NamedTuple):
    """An attempt whose outcome another test checks."""

    what: str
    outcome: Outcome
    test: str
    note: str = ""


Section = tuple[Attempt | Elsewhere, ...]


def asked(
    what: str, code: int, fields: Mapping[str, str] = {}, body: bytes = b"", outcome: Outcome = REFUSED, note: str = "",
    **how: Any,
) -> Attempt:  # fmt: skip
    """Return an attempt: a request signed by its account; see `Stage.asks`."""
    return Attempt(what, lambda stage: stage.asks(code, fields, body, **how), outcome, note)


def sent(what: str, data: bytes, outcome: Outcome = REFUSED, note: str = "", to: str = "broker") -> Attempt:
    """Return an attempt: bytes on a new connection."""
    return Attempt(what, lambda stage: stage.sends(data, to), outcome, note)
