"""Templates of request frames: the constant JSON of one queue, with gaps for variable parts (wire.md §4, §6).

The header is most of a client's cost of a send or pull. So the parts that are the same for all requests of one queue
are encoded once, and each frame inserts only the few numbers and properties that change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import Struct

import orjson

from tianzhou._hot import SendFrames
from tianzhou._hot.frames import java_json
from tianzhou.errors import ClientError
from tianzhou.model import Message, MessageQueue, SubscriptionData, names
from tianzhou.wire.codes import COMMIT_OFFSET, FLAG_ONEWAY, SUBSCRIPTION, SUSPEND, VERSION, LanguageCode, RequestCode
from tianzhou.wire.properties import MAX_BYTES, check_properties_size

_pack_lengths = Struct(">ii").pack
_PLAIN = re.compile(r"[ !#-\[\]-~]*").fullmatch
_LANGUAGE = LanguageCode.PYTHON.name


def json_text(text: str) -> str:
    """Return a text escaped for a JSON string, without the quotes.

    Raises:
        ClientError: the text has an unpaired surrogate, which has no UTF-8 form.
    """
    if _PLAIN(text):
        return text
    try:
        return orjson.dumps(text)[1:-1].decode()
    except TypeError:
        raise ClientError(f"{text!r} holds a lone surrogate, which cannot be sent as UTF-8; clean the text") from None


def properties_json(properties: Mapping[str, str]) -> str:
    r"""Return a property string as JSON text: `name\u0001value\u0002`, repeated.

    Raises:
        ClientError: the string has more than 32,767 bytes.
    """
    parts = [f"{json_text(name)}\\u0001{json_text(value)}\\u0002" for name, value in properties.items()]
    text = "".join(parts)
    if len(text) * 4 > MAX_BYTES:
        check_properties_size(sum(len(n.encode()) + len(v.encode()) + 2 for n, v in properties.items()))
    return text


def plain_properties_json(unique_key: str, message: Message) -> str:
    """As `properties_json`, faster, for only a message's unique key, tag and keys.

    Args:
        unique_key: the message's unique key.
        message: a message without other properties.

    Raises:
        ClientError: the string has more than 32,767 bytes.
    """
    text = f"UNIQ_KEY\\u0001{unique_key}\\u0002"
    tags, keys = message.tags, message.keys
    if tags:
        text += f"TAGS\\u0001{json_text(tags)}\\u0002"
    if keys:
        text += f"KEYS\\u0001{json_text(keys if isinstance(keys, str) else message.key_text())}\\u0002"
    if len(text) * 4 > MAX_BYTES:
        pairs = ((names.UNIQ_KEY, unique_key), (names.TAGS, tags), (names.KEYS, message.key_text()))
        return properties_json({name: value for name, value in pairs if value})
    return text


class SendTemplate:
    """Encoder of send frames (code 310, or 320 for batches) for one queue.

    Args:
        group: the producer group.
        queue: the target queue.
        default_topic: topic whose permissions an automatically created topic gets.
        default_topic_queue_nums: number of queues of such a topic.
        topic: the servers' name of the queue's topic, when it differs: inside a namespace.
        unit_mode: whether the producer works in unit mode.

    Attributes:
        frames: encoder of single messages, as `frame` in a third of the time; nearly all sends use it.
    """

    __slots__ = ("_middle", "_start", "frames", "queue")

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
        self.frames = SendFrames(
            f'{{"code":{RequestCode.SEND_MESSAGE_V2:d},{self._start}',
            f'","j":"0{self._middle},"m":"false"}},"flag":0,"language":"{_LANGUAGE}","opaque":',
            f',"version":{VERSION}}}',
        )

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
        """Encode a whole frame.

        Args:
            opaque: the request's number.
            born_ms: creation time of the message, ms.
            properties: from `properties_json`.
            body: the body as sent: compressed if `sys_flag` has that bit; for a batch its encoding.
            flag: the user's flag.
            sys_flag: bits of wire.md §4.4.
            code: 310, 320 for a batch, or 325 for a reply.
            oneway: whether the broker sends no reply.
            reconsume_times: number of retries of a message to a retry topic.
            max_reconsume_times: maximum retries of a message to a retry topic.
        """
        limit = "" if max_reconsume_times is None else f'","l":"{max_reconsume_times}'
        header = (
            f'{{"code":{code:d},{self._start}{sys_flag}","g":"{born_ms}","h":"{flag}","i":"{properties}",'
            f'"j":"{reconsume_times}{limit}{self._middle},"m":"{"true" if code == 320 else "false"}"}},'
            f'"flag":{FLAG_ONEWAY if oneway else 0},"language":"{_LANGUAGE}","opaque":{opaque},"version":{VERSION}}}'
        ).encode()
        size = len(header)
        return b"".join((_pack_lengths(4 + size + len(body), size), header, body))


class PullTemplate:
    """Encoder of pull frames (code 11) for one queue.

    Args:
        group: the consumer group.
        queue: the queue.
        max_messages: maximum number of messages.
        max_bytes: maximum bytes of records; None to send no maximum.
        subscription: subscription to send; with None the broker uses that of the heartbeat.
        sub_version: version of the subscription in the heartbeat.
        suspend_ms: ms that the broker may hold the pull until a message arrives.
    """

    __slots__ = ("_before", "_between", "_end", "_flags")

    def __init__(
        self,
        group: str,
        queue: MessageQueue,
        *,
        max_messages: int,
        max_bytes: int | None,
        subscription: SubscriptionData | None,
        sub_version: int,
        suspend_ms: int,
    ) -> None:
        self._flags = (SUSPEND if suspend_ms else 0) | (SUBSCRIPTION if subscription is not None else 0)
        expression, kind = "", "TAG"
        if subscription is not None:
            expression = f'"subscription":{_java_text(subscription.sub_string)},'
            kind = subscription.expression_type
        limit = "" if max_bytes is None else f'"maxMsgBytes":"{max_bytes}",'
        self._before = (
            f'{{"code":{RequestCode.PULL_MESSAGE:d},"extFields":{{"consumerGroup":{_java_text(group)},'
            f'"topic":{_java_text(queue.topic)},"queueId":"{queue.queue_id}","queueOffset":"'
        )
        self._between = (
            f'","maxMsgNums":"{max_messages}","suspendTimeoutMillis":"{suspend_ms}",{expression}'
            f'"subVersion":"{sub_version}","expressionType":{_java_text(kind)},{limit}'
            f'"bname":{_java_text(queue.broker_name)},"sysFlag":"'
        )
        self._end = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'

    def frame(self, opaque: int, offset: int, commit_offset: int | None) -> bytes:
        """Encode the whole frame of a pull."""
        flags = self._flags if commit_offset is None else self._flags | COMMIT_OFFSET
        header = (
            f'{self._before}{offset}{self._between}{flags}","commitOffset":"{commit_offset or 0}"}},"flag":0,'
            f'"language":"{_LANGUAGE}","opaque":{opaque}{self._end}'
        ).encode()
        size = len(header)
        return _pack_lengths(4 + size, size) + header


def _java_text(text: str) -> str:
    return java_json(text).decode()
