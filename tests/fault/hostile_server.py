"""A name server and broker in one, with correct replies, or with replies changed by a test."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from tianzhou.admin import Admin
from tianzhou.model import BrokerData, ClusterInfo, MessageQueue, QueueData, TopicRoute
from tianzhou.records.codec import Record, encode_record
from tianzhou.remoting.connection import Connection
from tianzhou.remoting.server import RemotingServer
from tianzhou.wire.bodies.clients import CONSUMER_IDS, LOCK_REQUEST, LOCKED_QUEUES
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.bodies.route import CLUSTER_INFO, STANDARD_ROUTE
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import Command, encode
from tianzhou.wire.compression import compress
from tianzhou.wire.fields import read_header, request_fields, write_reply

TOPIC = "T"
BROKER = "broker-a"
HOLD_S = 5.0
MOST_REQUESTS = 5_000
"""Number of requests after which a client gets no replies any more, so that its test ends."""

Twist = Callable[["Server", Connection, Command, Command | None], Any]
"""A function that returns the bytes to send instead of a reply: a command, a frame, or None."""


class Server:
    """One queue of one topic, and replies to all other requests of clients."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.offsets: dict[tuple[str, str], int] = {}
        self.members: dict[str, list[str]] = {}
        self.asked: Counter[int] = Counter()
        self.twisted = 0
        self.twist: Twist | None = None
        self.code = 0
        self.clients: set[Connection] = set()
        self._arrived = asyncio.Event()
        self.server = RemotingServer("127.0.0.1", 0, self._serve, on_connect=self.clients.add)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def store(self, body: bytes, **fields: Any) -> None:
        offset = len(self.log)
        self.log.append(encode_record(record(offset, body, **fields)))
        self._arrived.set()
        self._arrived = asyncio.Event()

    def route(self, **queues: int) -> TopicRoute:
        data = QueueData(BROKER, queues.get("read", 1), queues.get("write", 1), 6)
        return TopicRoute([data], [BrokerData(BROKER, "c", {0: self.address})])

    def _serve(self, connection: Connection, command: Command) -> Any:
        command.body = bytes(command.body)
        self.asked[command.code] += 1
        if self.asked.total() > MOST_REQUESTS:
            return None
        twist = self.twist if command.code == self.code else None
        answer = getattr(self, f"_on_{command.code}", self._on_any)
        if twist is None:
            return answer(command)
        self.twisted += 1
        if command.code == RequestCode.PULL_MESSAGE:
            header = read_header(command)
            # Immediate, and for the topic only: a hostile broker holds no pulls.
            return twist(self, connection, command, self._found(command, header.topic == TOPIC))
        return twist(self, connection, command, answer(command))

    def _on_any(self, command: Command) -> Command:
        return command.reply(0)

    def _on_105(self, command: Command) -> Command:
        topic = read_header(command).topic
        if topic not in (TOPIC, "TBW102") and not topic.startswith("%RETRY%"):
            return command.reply(17, "no such topic")
        return command.reply(0, body=STANDARD_ROUTE.dumps(self.route()))

    def _on_106(self, command: Command) -> Command:
        info = ClusterInfo({BROKER: self.route().broker_datas[0]}, {"c": [BROKER]})
        return command.reply(0, body=CLUSTER_INFO.dumps(info))

    def _on_34(self, command: Command) -> Command:
        said = HEARTBEAT.loads(command.body)
        for consumer in said.consumers:
            members = self.members.setdefault(consumer.group_name, [])
            if said.client_id not in members:
                members.append(said.client_id)
        return command.reply(0)

    def _on_38(self, command: Command) -> Command:
        members = self.members.get(read_header(command).consumer_group, [])
        return command.reply(0, body=CONSUMER_IDS.dumps(members))

    def _on_41(self, command: Command) -> Command:
        queues = LOCK_REQUEST.loads(command.body).queues
        return command.reply(0, body=LOCKED_QUEUES.dumps(queues))

    def _on_14(self, command: Command) -> Command:
        header = read_header(command)
        offset = self.offsets.get((header.consumer_group, header.topic), 0)
        return command.reply(0, fields=write_reply(14, offset=offset))

    def _on_15(self, command: Command) -> Command:
        header = read_header(command)
        self.offsets[header.consumer_group, header.topic] = header.commit_offset
        return command.reply(0)

    def _on_29(self, command: Command) -> Command:
        return command.reply(0, fields=write_reply(29, offset=0))

    def _on_30(self, command: Command) -> Command:
        return command.reply(0, fields=write_reply(30, offset=len(self.log)))

    def _on_31(self, command: Command) -> Command:
        return command.reply(0, fields=write_reply(31, offset=0))

    def _on_32(self, command: Command) -> Command:
        return command.reply(0, fields=write_reply(32, timestamp=1))

    def _on_33(self, command: Command) -> Command:
        return command.reply(0, body=encode_record(record(0, b"found")))

    def _on_12(self, command: Command) -> Command:
        fields = write_reply(12, index_last_update_timestamp=1, index_last_update_phyoffset=1)
        return command.reply(0, fields=fields, body=encode_record(record(0, b"found")))

    def _on_310(self, command: Command) -> Command:
        self.store(command.body)
        fields = write_reply(310, msg_id="7F00000100002A9F" + "0" * 16, queue_id=0, queue_offset=len(self.log) - 1)
        return command.reply(0, fields=fields)

    _on_320 = _on_310

    async def _on_11(self, command: Command) -> Command:
        header = read_header(command)
        for _ in range(2):
            if header.topic == TOPIC and header.queue_offset < len(self.log):
                break
            if header.queue_offset > len(self.log):
                return command.reply(21, "moved", self._pulled(len(self.log) if header.topic == TOPIC else 0))
            try:
                async with asyncio.timeout(HOLD_S):
                    await self._arrived.wait()
            except TimeoutError:
                return command.reply(19, "nothing", self._pulled(header.queue_offset))
        return self._found(command, header.topic == TOPIC)

    def _found(self, command: Command, of_topic: bool) -> Command:
        offset = max(read_header(command).queue_offset, 0)
        some = self.log[offset : offset + 32] if of_topic else []
        if not some:
            return command.reply(19, "nothing", self._pulled(offset))
        return command.reply(0, "FOUND", self._pulled(offset + len(some)), b"".join(some))

    def _pulled(self, following: int) -> dict[str, str]:
        return write_reply(
            11, suggest_which_broker_id=0, next_begin_offset=following, min_offset=0, max_offset=len(self.log)
        )


def record(offset: int, body: bytes, **fields: Any) -> Record:
    values: dict[str, Any] = {
        "topic": TOPIC, "queue_id": 0, "queue_offset": offset, "physical_offset": offset * 1000, "flag": 0,
        "sys_flag": 0, "born_timestamp": 1, "born_host": b"\x7f\0\0\x01", "born_port": 1, "store_timestamp": 2,
        "store_host": b"\x7f\0\0\x01", "store_port": 10911, "reconsume_times": 0, "prepared_transaction_offset": 0,
        "body": body, "properties": b"UNIQ_KEY\x01U\x02",
    }  # fmt: skip
    return Record(**values | fields)


# --- twists ------------------------------------------------------------------------------------------------------

NUMBERS = ("-1", "0", str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63), str(-(2**63)), "9" * 5_000)
TEXTS = (
    "",
    "abc",
    "null",
    "1.5",
    "NaN",
    "true",
    "\x1b[2J\x00\n",
    "x" * 70_000,
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "{}",
    "%RETRY%",
    "../../etc",
)
CODES = (1, 2, 3, 11, 17, 19, 20, 21, 22, 24, 25, 26, 29, 206, 1500, -1, 2**31 - 1, 4711)
BODIES = (
    b"", b"null", b"[]", b"{}", b"0", b'""', b"\xff\xfe\x00garbage", b"{" * 200_000, b"[" * 1_000, b'{"a":' * 5_000,
    b'{"$ref":"$"}', b'{"a":{"$ref":"$.a"}}', b"9" * 5_000, b'{"queueDatas":' + b"9" * 5_000 + b"}",
    b'{"offsetTable":{{"topic":"T"}:1}}', b"[" + b"{}," * 10_000 + b"{}]",
)  # fmt: skip


def changed_fields(seed: int) -> Twist:
    """Return a twist that changes or removes each header field of the reply."""

    def twist(_server: Server, _connection: Connection, _command: Command, answer: Command | None) -> Any:
        if not isinstance(answer, Command):
            return answer
        chance = random.Random(seed + _server.twisted)
        fields = dict(answer.fields)
        for name in list(fields) or ["offset"]:
            pick = chance.randrange(4)
            if pick == 0:
                fields.pop(name, None)
            elif pick < 3:
                fields[name] = chance.choice(NUMBERS)
            else:
                fields[name] = chance.choice(TEXTS)
        return Command(answer.code, flag=answer.flag, opaque=answer.opaque, fields=fields, body=bytes(answer.body))

    return twist


def changed_code(code: int) -> Twist:
    def twist(_server: Server, _connection: Connection, command: Command, answer: Command | None) -> Any:
        if isinstance(answer, Command):
            answer.code = code
            return answer
        return command.reply(code, "no")

    return twist


def other_body(body: bytes) -> Twist:
    def twist(_server: Server, _connection: Connection, command: Command, answer: Command | None) -> Any:
        fields = dict(answer.fields) if isinstance(answer, Command) else {}
        return command.reply(0, "hostile", fields, body)

    return twist


def changed_body(seed: int) -> Twist:
    """Return a twist that changes the type of one value in the reply's JSON, or bytes of its records."""

    def twist(server: Server, _connection: Connection, command: Command, answer: Command | None) -> Any:
        if not isinstance(answer, Command):
            return answer
        chance = random.Random(seed + server.twisted)
        body = bytearray(answer.body)
        if body[:1] == b"{":
            body = bytearray(mutated_json(bytes(body), chance))
        elif body:
            for _ in range(chance.randrange(1, 8)):
                at = chance.randrange(min(len(body), 200))
                body[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        return command.reply(answer.code, answer.remark or "", dict(answer.fields), bytes(body))

    return twist


def mutated_json(text: bytes, chance: random.Random) -> bytes:
    value = orjson.loads(text)
    places = list(_places(value))
    if places:
        holder, key = chance.choice(places)
        holder[key] = chance.choice(
            [None, -1, 2**31 - 1, 2**63 - 1, 1e308, True, "", "x" * 999, "NaN", "\x1b[2J", [], [None], {}, {"a": 1}]
        )  # fmt: skip
    return orjson.dumps(value)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def frames(kind: str) -> Twist:
    """Return a twist that sends invalid replies."""

    def twist(server: Server, connection: Connection, command: Command, answer: Command | None) -> Any:
        good = encode(answer if isinstance(answer, Command) else command.reply(0))
        match kind:
            case "silence":
                return None
            case "close":
                asyncio.get_running_loop().call_soon(connection.close)
                return None
            case "abort":
                asyncio.get_running_loop().call_soon(connection.abort)
                return None
            case "half":
                return good[: len(good) // 2]
            case "half and close":
                asyncio.get_running_loop().call_soon(connection.close)
                return good[: len(good) // 2]
            case "huge":
                return (2**31 - 1).to_bytes(4, "big") + good[4:]
            case "negative":
                return (-5).to_bytes(4, "big", signed=True) + good[4:]
            case "garbage":
                return random.Random(server.twisted).randbytes(400)
            case "garbage header":
                header = b"\x00" + b"{" * 50
                return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
            case "other opaque":
                answer = command.reply(0)
                answer.opaque = command.opaque + 12_345
                return encode(answer)
            case "many":
                return good * 500
            case "as a request":
                return encode(Command(command.code, opaque=command.opaque, fields=dict(command.fields)))
        raise AssertionError(kind)

    return twist


FRAMES = (
    "silence", "close", "abort", "half", "half and close", "huge", "negative", "garbage", "garbage header",
    "other opaque", "many", "as a request",
)  # fmt: skip


def fruitless(kind: str) -> Twist:
    """Return a twist that answers pulls immediately, without progress."""

    def twist(server: Server, _connection: Connection, command: Command, _answer: Command | None) -> Any:
        offset = read_header(command).queue_offset
        match kind:
            case "not found":
                return command.reply(19, "", server._pulled(offset))
            case "retry at once":
                return command.reply(20, "", server._pulled(offset))
            case "moved to the same offset":
                return command.reply(21, "", server._pulled(offset))
            case "moved to and fro":
                return command.reply(21, "", server._pulled(server.twisted % 2))
            case "found nothing":
                return command.reply(0, "", server._pulled(offset))
            case "found the same again":
                one = encode_record(record(offset, b"again", properties=b"AGAIN\x011\x02"))
                return command.reply(0, "", server._pulled(offset), one)
            case "backwards":
                return command.reply(20, "", server._pulled(max(offset - 1, 0)))
            case "far ahead":
                return command.reply(20, "", server._pulled(2**62))
            case "step by step":
                return command.reply(20, "", server._pulled(offset + 1) | {"maxOffset": str(2**40)})
        raise AssertionError(kind)

    return twist


FRUITLESS = (
    "not found", "retry at once", "moved to the same offset", "moved to and fro", "found nothing",
    "found the same again", "backwards", "far ahead", "step by step",
)  # fmt: skip


def bombs(kind: str) -> Twist:
    """Return a twist that sends small messages with a large decompressed size."""
    packed = {
        "zlib": (0x301, lambda: compress(bytes(BOMB_BYTES + 1), 0x300, 9)),
        "lz4": (0x101, lambda: compress(bytes(BOMB_BYTES + 1), 0x100)),
        "zstd": (0x201, lambda: compress(bytes(BOMB_BYTES), 0x200)),
        "batches": (0x2C1, lambda: compress(b"\x00" * 22 * 70_000, 0x200)),
        "no stream": (0x301, lambda: b"no stream"),
        "unknown kind": (0x701, lambda: b"no kind"),
    }
    sys_flag, make = packed[kind]
    body = make()

    def twist(server: Server, _connection: Connection, command: Command, _answer: Command | None) -> Any:
        offset = read_header(command).queue_offset
        if read_header(command).topic != TOPIC or offset >= MOST_BOMBS:
            return command.reply(19, "", server._pulled(offset))
        several = [encode_record(record(offset + n, body, sys_flag=sys_flag)) for n in range(32)]
        return command.reply(0, "", server._pulled(offset + 32) | {"maxOffset": str(offset + 32)}, b"".join(several))

    return twist


BOMB_BYTES = 16 << 20
MOST_BOMBS = 32
BOMBS = ("zlib", "lz4", "zstd", "batches", "no stream", "unknown kind")


def requests(code: int) -> Iterator[Command]:
    """Yield requests to a client, with every field and body hostile."""
    chance = random.Random(code)
    names = [field.wire for field in request_fields(code)] or ["group"]
    good = encode_record(record(0, b"x"))
    for number in range(120):
        fields = {name: chance.choice((*NUMBERS, *TEXTS, "push", "ordered", "poll", TOPIC)) for name in names}
        for name in chance.sample(names, min(len(names), number % 3)):
            del fields[name]
        if number % 4 == 0:
            fields |= {name: chance.choice(("push", "ordered", "poll")) for name in names if "roup" in name}
            fields |= {"topic": TOPIC}
        table = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:%d}}' % chance.choice(
            (-1, 2**63, 0, 5)
        )
        damaged = bytearray(good)
        damaged[chance.randrange(len(damaged))] ^= 0xFF
        yield Command(code, fields=fields, body=chance.choice((*BODIES, table, good, bytes(damaged))))


def questions(admin: Admin) -> list[tuple[int, Callable[[], Any]]]:
    """Return the queries of tools, with the code of the changed reply."""
    queue = MessageQueue(TOPIC, BROKER, 0)
    return [
        (105, lambda: admin.topics.route(TOPIC)),
        (106, lambda: admin.cluster.info()),
        (28, lambda: admin.cluster.status()),
        (206, lambda: admin.topics.names()),
        (202, lambda: admin.topics.stats(TOPIC)),
        (351, lambda: admin.topics.config(TOPIC)),
        (300, lambda: admin.topics.groups(TOPIC)),
        (201, lambda: admin.groups.names()),
        (203, lambda: admin.groups.connections("push")),
        (208, lambda: admin.groups.lag("push")),
        (307, lambda: admin.groups.running_info("push", "id")),
        (309, lambda: admin.groups.consume_directly("push", "id", "7F00000100002A9F" + "0" * 16, TOPIC)),
        (11, lambda: admin.messages.by_offset(queue, 0)),
    ]
