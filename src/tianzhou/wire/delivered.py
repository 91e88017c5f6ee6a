"""Delivered messages, which decode rarely used attributes at the first access (wire.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from struct import Struct
from typing import Any, Final, cast

from tianzhou.errors import BodyTooLarge, ProtocolError
from tianzhou.limits import UNPACKED_BODY
from tianzhou.model import MessageExt
from tianzhou.records import layout
from tianzhou.unpacked_bodies import UnpackedBodies
from tianzhou.wire import ids
from tianzhou.wire.compression import decompress
from tianzhou.wire.properties import decode_properties

# The attributes of the base class, which the properties below hide.
_slots: Final[Any] = MessageExt.__dict__
_body_slot: Final = _slots["body"]
_FIELDS: Final = tuple(field.name for field in fields(MessageExt))
_FIELDS_OF_HEAD: Final = {field.name: field for field in layout.FIELDS}
_unpack_host: Final = Struct(">4si").unpack_from

MAX_CACHED_BYTES: Final = 1 << 20
"""Maximum size in bytes of an unpacked body that a message stores after the first access."""

OF_PROCESS: Final = UnpackedBodies()
"""The bound on unpacked bodies of messages that no client has pulled, such as messages of tools."""


def _late(name: str, make: Callable[[DeliveredMessage], Any]) -> Any:
    """Return a property that computes its value at the first access, unless a value was set before."""
    slot = _slots[name]

    def look(message: DeliveredMessage) -> Any:
        try:
            return slot.__get__(message)
        except AttributeError:
            made = make(message)
        slot.__set__(message, made)
        return made

    return property(look, slot.__set__)


def _in_head(name: str, field: str = "") -> Any:
    """Return an attribute that is a number in the head; by default its field has the same name."""
    _, _, form, at = _FIELDS_OF_HEAD[field or name]
    unpack = Struct(f">{form}").unpack_from
    return _late(name, lambda message: unpack(message.head, at)[0])


def _host_in_head(name: str) -> Any:
    at = layout.AT[name]
    return _late(name, lambda message: ids.host_text(*_unpack_host(message.head, at)))


def _id_of(message: DeliveredMessage) -> str:
    host, port = _unpack_host(message.head, layout.AT["store_host"])
    return ids.offset_msg_id(host, port, message.commitlog_offset)


class DeliveredMessage(MessageExt):
    """A message that decodes most of its attributes at the first access.

    Properties and numbers are most of the cost of decoding a message, and many consumers read only the body. Code
    creates it like a `MessageExt`. `decode_messages` sets only the raw data of the attributes that are decoded later.

    Attributes:
        head: the record in front of the body, as stored, with IPv4 hosts.
        raw_properties: the property string as stored; None once `properties` holds the pairs.
        more_properties: pairs that the client adds behind it, see `pair_behind`.
    """

    # No `__getattr__`: with one, the interpreter would read every attribute of a message by its slow path.
    __slots__ = ("head", "more_properties", "raw_properties")
    head: bytes
    raw_properties: bytes | None
    more_properties: bytes

    @property
    def properties(self) -> dict[str, str]:
        """All properties of the record, system properties included."""
        raw = self.raw_properties
        if raw is None:
            return cast("dict[str, str]", _slots["properties"].__get__(self))
        found = self.properties = decode_properties(raw + self.more_properties)
        return found

    @properties.setter
    def properties(self, value: dict[str, str]) -> None:
        self.raw_properties = None
        _slots["properties"].__set__(self, value)

    store_size = _in_head("store_size", "size")
    body_crc = _in_head("body_crc")
    queue_id = _in_head("queue_id")
    flag = _in_head("flag")
    commitlog_offset = _in_head("commitlog_offset", "physical_offset")
    born_timestamp = _in_head("born_timestamp")
    born_host = _host_in_head("born_host")
    store_timestamp = _in_head("store_timestamp")
    store_host = _host_in_head("store_host")
    reconsume_times = _in_head("reconsume_times")
    prepared_transaction_offset = _in_head("prepared_transaction_offset")
    offset_msg_id = _late("offset_msg_id", _id_of)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in _FIELDS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageExt):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]


class PackedMessage(DeliveredMessage):
    """A message that unpacks its body at an access. A waiting message occupies no more memory than its sent form.

    The message stores an unpacked body of up to `MAX_CACHED_BYTES` while its client's bound has room for the body
    (`UnpackedBodies`). It unpacks any other body at each access, so that a program with many messages does not hold the
    unpacked bodies of all of them.

    A body that cannot be unpacked raises a `ProtocolError` at each access. In a handler this error means that the
    message is not consumed.

    Attributes:
        packed: the body as stored; empty while the message stores the unpacked body.
        packed_flag: the bits of the stored flags that name the compression of the body.
        limit_bytes: maximum size of the unpacked body in bytes.
        unpacked: bound that counts the unpacked body.
        kept_bytes: bytes of the stored unpacked body, which `unpacked` counts.
        failure: error with which the body cannot be unpacked; None while no error is known.
    """

    __slots__ = ("failure", "kept_bytes", "limit_bytes", "packed", "packed_flag", "unpacked")
    packed: bytes
    packed_flag: int
    limit_bytes: int
    unpacked: UnpackedBodies
    kept_bytes: int
    failure: ProtocolError | None

    @classmethod
    def of(
        cls,
        message: DeliveredMessage,
        packed_flag: int,
        limit_bytes: int,
        failure: ProtocolError | None = None,
        unpacked: UnpackedBodies | None = None,
    ) -> PackedMessage:
        """Return the message with a packed body.

        Args:
            message: the message, with the body as stored.
            packed_flag: sysFlag bits of the body's compression.
            limit_bytes: maximum size of the unpacked body in bytes.
            failure: error with which the body could not be unpacked, if it is already known.
            unpacked: bound that counts the unpacked body; by default the bound of the process.
        """
        made = cls(*(getattr(message, name) for name in _FIELDS))
        made.packed, made.packed_flag, made.limit_bytes, made.failure = message.body, packed_flag, limit_bytes, failure
        made.unpacked = unpacked or OF_PROCESS
        _body_slot.__delete__(made)
        return made

    def __del__(self) -> None:
        if self.kept_bytes:
            self.unpacked.release(self.kept_bytes)

    @property
    def body(self) -> bytes:
        """The payload, unpacked."""
        try:
            return cast("bytes", _body_slot.__get__(self))
        except AttributeError:
            pass
        if self.failure is None:
            try:
                found = decompress(self.packed, self.packed_flag, self.limit_bytes)
            except ProtocolError as error:
                self.failure = error.with_traceback(None)
            else:
                if len(found) <= MAX_CACHED_BYTES and self.unpacked.keep(len(found)):
                    self.body = found
                    self.kept_bytes = len(found)
                return found
        where = f"{self.topic}@{self.broker_name}:{self.queue_id} offset {self.queue_offset}"
        fix = f"; the client's {UNPACKED_BODY.name} raises it" if isinstance(self.failure, BodyTooLarge) else ""
        raise ProtocolError(f"message at {where}: {self.failure}{fix}") from self.failure

    @body.setter
    def body(self, value: bytes) -> None:
        # The dataclass's `__init__` sets the body before `kept_bytes` exists.
        if kept_bytes := getattr(self, "kept_bytes", 0):
            self.unpacked.release(kept_bytes)
        self.kept_bytes = 0
        self.packed = b""
        _body_slot.__set__(self, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return DeliveredMessage, tuple(getattr(self, name) for name in _FIELDS)


def unreadable(message: MessageExt) -> ProtocolError | None:
    """Return the error of reading a message's body; None when the body can be read. The body is unpacked then."""
    if isinstance(message, PackedMessage):
        try:
            _ = message.body
        except ProtocolError as error:
            return error
    return None


def body_sizes(messages: Sequence[MessageExt]) -> list[int]:
    """Return the bytes that each body occupies now, without unpacking any body."""
    if PackedMessage in map(type, messages):
        return [len(m.packed or m.body) if type(m) is PackedMessage else len(m.body) for m in messages]
    return [len(m.body) for m in messages]


def pair_behind(name: str, value: str) -> bytes:
    """Encode a property to append to a property string, which may end without a separator. The last pair counts."""
    return f"\x02{name}\x01{value}\x02".encode()


def add_property(messages: Iterable[MessageExt], name: str, value: str) -> None:
    """Add a property to delivered messages, without parsing property strings that are still raw."""
    pair = pair_behind(name, value)
    for message in messages:
        if isinstance(message, DeliveredMessage) and message.raw_properties is not None:
            message.more_properties += pair
        else:
            message.properties[name] = value
