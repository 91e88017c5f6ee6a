"""A minimal client of the remoting protocol for black-box checks: one JSON frame, one reply.

It shares no code with the package under test, so that both cannot have the same error.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from waiting import until

SEND_MESSAGE = 10
UPDATE_AND_CREATE_TOPIC = 17
UPDATE_BROKER_CONFIG = 25
GET_ROUTE = 105
SUCCESS = 0
TIMEOUT_S = 30.0
_BARE_KEY = re.compile(rb"([{,]\s*)(\d+)\s*:")


@dataclass(frozen=True)
class Account:
    """The account that signs a request."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class Reply:
    """A response frame: code, remark, header fields and body."""

    code: int
    remark: str
    fields: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON, with bare integer keys quoted."""
        return json.loads(_BARE_KEY.sub(rb'\1"\2":', self.body))


class Connection:
    """A connection that carries one request after the other; `with Connection(address) as connection`."""

    def __init__(self, address: str, timeout: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._socket = socket.create_connection((host, int(port)), timeout=timeout)
        # Each request is written at once and waits for its reply, so delaying small packets has no advantage.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        language: str = "OTHER",
        account: Account | None = None,
    ) -> Reply:
        """Send one request, signed for an account if there is one, and return the reply.

        Requests of the server meanwhile are ignored.
        """
        if account is not None:
            fields = signed(account, fields or {}, body)
        self._opaque += 1
        header = json.dumps(
            {
                "code": code,
                "flag": 0,
                "language": language,
                "opaque": self._opaque,
                "version": 453,
                "serializeTypeCurrentRPC": "JSON",
                "extFields": {name: str(value) for name, value in (fields or {}).items()},
            }
        ).encode()
        frame = struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body
        self._socket.sendall(frame)
        while True:
            (length,) = struct.unpack(">i", _exactly(self._socket, 4))
            reply = _exactly(self._socket, length)
            header_length = struct.unpack(">i", reply[:4])[0] & 0xFFFFFF
            parsed = json.loads(reply[4 : 4 + header_length])
            if parsed["flag"] & 1 and parsed["opaque"] == self._opaque:
                break
        remark = parsed.get("remark") or ""
        return Reply(parsed["code"], remark, parsed.get("extFields") or {}, reply[4 + header_length :])


def call(
    address: str,
    code: int,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
    timeout: float = TIMEOUT_S,
    language: str = "OTHER",
    account: Account | None = None,
) -> Reply:
    """Send one request over a new connection and return the reply."""
    with Connection(address, timeout) as connection:
        return connection.call(code, fields, body, language, account)


def signed(account: Account, fields: Mapping[str, object], body: bytes) -> dict[str, object]:
    """Return header fields with an account's signature over their values, in the order of their names, and the body."""
    found = {**fields, "AccessKey": account.access_key}
    content = "".join(str(found[name]) for name in sorted(found)).encode() + body
    mac = hmac.digest(account.secret_key.encode(), content, "sha1")
    return {**found, "Signature": base64.b64encode(mac).decode()}


def route(namesrv: str, topic: str) -> dict[str, Any] | None:
    """Return the route of a topic from the name server, or None when it has none."""
    reply = call(namesrv, GET_ROUTE, {"topic": topic})
    return reply.json() if reply.code == SUCCESS else None


def masters(namesrv: str, topic: str) -> list[str]:
    """Return the addresses of the masters that serve a topic."""
    found = route(namesrv, topic) or {}
    return [data["brokerAddrs"]["0"] for data in found.get("brokerDatas", ()) if "0" in data["brokerAddrs"]]


def accepts(address: str) -> bool:
    """Whether a server listens at an address."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return True
    except OSError:
        return False


def members(namesrv: str, topic: str) -> list[str]:
    """Return the addresses of the masters and slaves that serve a topic."""
    found = route(namesrv, topic) or {}
    return [address for data in found.get("brokerDatas", ()) for address in data["brokerAddrs"].values()]


def create_topic(namesrv: str, broker: str, topic: str, queues: int) -> None:
    """Create a topic on a broker and wait until its route is visible."""
    fields: dict[str, object] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }

    def created() -> bool:
        return call(broker, UPDATE_AND_CREATE_TOPIC, fields).code == SUCCESS and broker in masters(namesrv, topic)

    until(created, f"topic {topic} is created on {broker}")


def send(
    broker: str, topic: str, queue_id: int, body: bytes, properties: dict[str, str], account: Account | None = None
) -> int:
    """Send one message to one queue and return its queue offset."""
    fields: dict[str, object] = {
        "producerGroup": "interop_probe",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue_id,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": "".join(f"{name}\x01{value}\x02" for name, value in properties.items()),
        "reconsumeTimes": 0,
        "unitMode": "false",
    }
    reply = call(broker, SEND_MESSAGE, fields, body, account=account)
    if reply.code != SUCCESS:
        raise AssertionError(f"send to {topic}@{queue_id} was refused: {reply.code} {reply.remark}")
    return int(reply.fields["queueOffset"])


def _exactly(connection: socket.socket, length: int) -> bytes:
    buffer = bytearray()
    while len(buffer) < length:
        chunk = connection.recv(length - len(buffer))
        if not chunk:
            raise ConnectionError(f"closed after {len(buffer)} of {length} bytes")
        buffer += chunk
    return bytes(buffer)
