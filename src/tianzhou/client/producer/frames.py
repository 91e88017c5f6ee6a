"""Messages as they go out: properties, compression, and whole frames from byte templates (client.md §5.6, wire.md §4).

A producer's cost per message is mostly its header, so everything that stays the same for one queue is text
already, and only the few changing numbers and the properties are put in between. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import Struct

import orjson

from tianzhou.client.validation import MAX_PROPERTIES_BYTES
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageExt, MessageQueue, names
from tianzhou.wire.codes import FLAG_ONEWAY, VERSION, LanguageCode, RequestCode
from tianzhou.wire.compression import COMPRESSED, KIND_MASK, compress

_pack_lengths = Struct(">ii").pack
_PLAIN = re.compile(r"[ !#-\[\]-~]*").fullmatch
_LANGUAGE = LanguageCode.PYTHON.name
_LAST = f',"version":{VERSION}}}'
_OF_ONE_DELIVERY = (
    names.TRAN_MSG,
    names.RECONSUME_TIME,
    names.MAX_RECONSUME_TIMES,
    names.MIN_OFFSET,
    names.MAX_OFFSET,
    names.CONSUME_START_TIME,
)


def json_text(text: str) -> str:
    """`text` as it stands between the quotes of a JSON string.

    Raises:
        ClientError: it holds half of a surrogate pair, which has no UTF-8 form.
    """
    if _PLAIN(text):
        return text
    try:
        return orjson.dumps(text)[1:-1].decode()
    except TypeError:
        raise ClientError(f"{text!r} holds a lone surrogate, which cannot be sent as UTF-8; clean the text") from None


def message_properties(message: Message, unique_key: str, namespace: str | None = None) -> dict[str, str]:
    """All properties of a message: its own, and those its fields stand for."""
    result = dict(message.properties)
    result[names.UNIQ_KEY] = unique_key
    if namespace:
        result[names.INSTANCE_ID] = namespace
    if message.tags:
        result[names.TAGS] = message.tags
    if message.keys and (keys := message.key_text()):
        result[names.KEYS] = keys
    if message.delay_level:
        result[names.DELAY] = str(message.delay_level)
    if message.sharding_key:
        result[names.SHARDING_KEY] = message.sharding_key
    if not message.wait_store_ok:
        result[names.WAIT] = "false"
    return result


def retry_properties(message: MessageExt, delay_level: int) -> dict[str, str]:
    """The properties of a delivered message that is stored in its group's retry topic (client.md §13.4)."""
    result = dict(message.properties)
    for name in _OF_ONE_DELIVERY:
        result.pop(name, None)
    result.setdefault(names.ORIGIN_MESSAGE_ID, message.msg_id)
    result.setdefault(names.RETRY_TOPIC, message.topic)
    result[names.DELAY] = str(delay_level)
    return result


def properties_json(properties: Mapping[str, str]) -> str:
    r"""A property string as JSON text: `name\u0001value\u0002`, repeated.

    Raises:
        ClientError: the string has more than 32,767 bytes.
    """
    parts = [f"{json_text(name)}\\u0001{json_text(value)}\\u0002" for name, value in properties.items()]
    text = "".join(parts)
    if len(text) * 4 > MAX_PROPERTIES_BYTES:
        check_properties_size(sum(len(n.encode()) + len(v.encode()) + 2 for n, v in properties.items()))
    return text


def check_properties_size(size_bytes: int) -> None:
    """Check the length of a property string.

    Raises:
        ClientError: it does not fit into its 16-bit length field.
    """
    if size_bytes > MAX_PROPERTIES_BYTES:
        raise ClientError(
            f"the message's properties take {size_bytes} bytes, the limit is {MAX_PROPERTIES_BYTES}; "
            "put the data into the body"
        )


def plain_properties_json(unique_key: str, message: Message) -> str:
    """As `properties_json(message_properties(…))`, quick for messages with at most a tag and keys."""
    text = f"UNIQ_KEY\\u0001{unique_key}\\u0002"
    tags, keys = message.tags, message.keys
    if tags:
        text += f"TAGS\\u0001{json_text(tags)}\\u0002"
    if keys:
        text += f"KEYS\\u0001{json_text(keys if isinstance(keys, str) else message.key_text())}\\u0002"
    if len(text) * 4 > MAX_PROPERTIES_BYTES:
        return properties_json(message_properties(message, unique_key))
    return text


def is_plain(message: Message) -> bool:
    """Whether a message has no properties beyond tag and keys."""
    return not (message.properties or message.delay_level or message.sharding_key) and message.wait_store_ok


def pack_body(body: bytes, threshold: int, kind: int, level: int) -> tuple[bytes, int]:
    """A body as it is sent, and the sysFlag bits that say so (client.md §6.2).

    Args:
        body: the message's body.
        threshold: it is compressed from this many bytes on.
        kind: ZLIB, LZ4 or ZSTD.
        level: 0 to 9.

    Returns:
        The compressed body when that is smaller, else the body itself with no bits.
    """
    if len(body) < threshold:
        return body, 0
    packed = compress(body, kind, level)
    return (packed, COMPRESSED | kind & KIND_MASK) if len(packed) < len(body) else (body, 0)


def mark(born_ms: int, flag: int = 0, sys_flag: int = 0) -> str:
    """The numbers of a message that most messages of a millisecond have in common, for `FrameTemplate.single`."""
    return f'{sys_flag}","g":"{born_ms}","h":"{flag}","i":"'


class FrameTemplate:
    """Builds send frames (code 310, or 320 for batches) for one queue.

    Args:
        group: the producer group.
        queue: where the messages go.
        default_topic: whose permissions a topic created on the fly takes over.
        default_topic_queue_nums: how many queues such a topic gets.
        topic: the queue's topic as the servers know it, when that differs: inside a namespace.
        unit_mode: whether the producer works in unit mode.
    """

    __slots__ = ("_end", "_middle", "_single", "_start", "queue")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        default_topic: str,
        default_topic_queue_nums: int,
        *,
        topic: str | None = None,
        unit_mode: bool = False,
    ) -> None:
        self.queue = queue
        self._start = (
            f'"extFields":{{"a":"{json_text(group)}","b":"{json_text(topic or queue.topic)}",'
            f'"c":"{json_text(default_topic)}",'
            f'"d":"{default_topic_queue_nums}","e":"{queue.queue_id}","f":"'
        )
        unit = "true" if unit_mode else "false"
        self._middle = f'","k":"{unit}","n":"{json_text(queue.broker_name)}"'
        self._single = f'{{"code":{RequestCode.SEND_MESSAGE_V2:d},{self._start}'
        self._end = f'","j":"0{self._middle},"m":"false"}},"flag":0,"language":"{_LANGUAGE}","opaque":'

    def single(self, opaque: int, mark: str, properties: str, body: bytes) -> bytes:
        """The frame that `frame` makes of what `mark` was made of, in a third of the time: the path of nearly all."""
        header = f"{self._single}{mark}{properties}{self._end}{opaque}{_LAST}".encode()
        size = len(header)
        return b"".join((_pack_lengths(4 + size + len(body), size), header, body))

    def frame(
        self,
        opaque: int,
        born_ms: int,
        properties: str,
        body: bytes,
        *,
        flag: int = 0,
        sys_flag: int = 0,
        code: int = RequestCode.SEND_MESSAGE_V2,
        oneway: bool = False,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
    ) -> bytes:
        """A whole frame.

        Args:
            opaque: the request's number.
            born_ms: when the message was made.
            properties: from `properties_json`.
            body: as sent, so compressed already; of a batch its encoding.
            flag: the user's flag.
            sys_flag: bits of wire.md §4.4.
            code: 310, 320 for a batch, or 325 for a reply.
            oneway: whether no reply is wanted.
            reconsume_times: of messages sent to a retry topic.
            max_reconsume_times: of messages sent to a retry topic.
        """
        limit = "" if max_reconsume_times is None else f'","l":"{max_reconsume_times}'
        header = (
            f'{{"code":{code:d},{self._start}{sys_flag}","g":"{born_ms}","h":"{flag}","i":"{properties}",'
            f'"j":"{reconsume_times}{limit}{self._middle},"m":"{"true" if code == 320 else "false"}"}},'
            f'"flag":{FLAG_ONEWAY if oneway else 0},"language":"{_LANGUAGE}","opaque":{opaque},"version":{VERSION}}}'
        ).encode()
        size = len(header)
        return b"".join((_pack_lengths(4 + size + len(body), size), header, body))
