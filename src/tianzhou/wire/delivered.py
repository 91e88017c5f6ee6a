"""A message as pulls deliver it, of which what few look at is made when it is first looked at (wire.md §5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final, cast

from tianzhou.model import MessageExt
from tianzhou.wire.ids import host_text, offset_msg_id
from tianzhou.wire.properties import decode_properties

# The attribute of the base class, which the property below hides.
_properties_slot: Final[Any] = MessageExt.__dict__["properties"]
_FIELDS: Final = tuple(field.name for field in fields(MessageExt))


class DeliveredMessage(MessageExt):
    """A message whose properties, hosts and offset id are made when they are first looked at.

    Most of what decoding a message costs is its properties, and many consumers read only the body. It is made like a
    `MessageExt`, or by `decode_messages`, which leaves out what is made later and sets what that is made of.

    Attributes:
        raw_properties: the property string as stored; None once `properties` holds the pairs.
        more_properties: what is to come behind it, see `pair_behind`.
    """

    __slots__ = ("_born_host", "_born_port", "_store_host", "_store_port", "more_properties", "raw_properties")
    _born_host: bytes
    _born_port: int
    _store_host: bytes
    _store_port: int
    raw_properties: bytes | None
    more_properties: bytes

    @property
    def properties(self) -> dict[str, str]:
        """What the record carries, system properties included."""
        raw = self.raw_properties
        if raw is None:
            return cast("dict[str, str]", _properties_slot.__get__(self))
        found = self.properties = decode_properties(raw + self.more_properties)
        return found

    @properties.setter
    def properties(self, value: dict[str, str]) -> None:
        self.raw_properties = None
        _properties_slot.__set__(self, value)

    def __getattr__(self, name: str) -> Any:
        # Reached only for what is not set yet.
        made: str
        if name == "offset_msg_id":
            made = offset_msg_id(self._store_host, self._store_port, self.commitlog_offset)
        elif name == "born_host":
            made = host_text(self._born_host, self._born_port)
        elif name == "store_host":
            made = host_text(self._store_host, self._store_port)
        else:
            raise AttributeError(f"a delivered message has no attribute {name!r}", name=name, obj=self)
        setattr(self, name, made)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in _FIELDS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageExt):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]


def pair_behind(name: str, value: str) -> bytes:
    """One property, to be put behind a property string, with its last separator or without; the last of a name wins."""
    return f"\x02{name}\x01{value}\x02".encode()


def add_property(messages: Iterable[MessageExt], name: str, value: str) -> None:
    """Give delivered messages one more property; those they have stay unparsed where they are so now."""
    pair = pair_behind(name, value)
    for message in messages:
        if type(message) is DeliveredMessage and message.raw_properties is not None:
            message.more_properties += pair
        else:
            message.properties[name] = value
