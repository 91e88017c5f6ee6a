"""Codecs of JSON bodies: the members of an object are the attributes of a dataclass, in camelCase.

Decoding is as lenient as fastjson (wire.md §1.13). It ignores unknown members and uses the attribute's default for
missing and null ones. It accepts numbers as text and texts as numbers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tianzhou.errors import ProtocolError
from tianzhou.model import MessageQueue
from tianzhou.records.checksum import Octets
from tianzhou.wire.json_dialect import (
    EncodedValue,
    Members,
    as_key,
    dumps,
    dumps_plain,
    dumps_slices,
    dumps_standard,
    loads,
)
from tianzhou.wire.json_shape import FOREIGN_DEPTH, check_depth

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MemberKind:
    """Encoder and decoder of one kind of member; `read` gets the value and its path for error texts.

    Attributes:
        slowly: lazy variant of `write` for `dumps_slices`: it converts the content of lists and maps only when that is
            written.
    """

    write: Callable[[Any], Any]
    read: Callable[[Any, str], Any]
    slowly: Callable[[Any], Any] | None = None

    @property
    def lazily(self) -> Callable[[Any], Any]:
        """`slowly`, or `write` for kinds without large values."""
        return self.slowly or self.write


def _same(value: Any) -> Any:
    return value


def wrong(where: str, value: Any, expected: str) -> ProtocolError:
    """Return the error for a member that cannot be decoded."""
    text = repr(value)
    return ProtocolError(f"{where}: {text if len(text) <= 80 else text[:77] + '...'} is not {expected}")


def read_text(value: Any, where: str) -> str:
    """Decode text; numbers and booleans are accepted and return their JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return dumps(value).decode()
    raise wrong(where, value, "text")


def read_integer(value: Any, where: str) -> int:
    """Decode an integer; text and doubles without fraction are accepted."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (str, float)):
        try:
            number = float(value) if isinstance(value, float) or "." in value else int(value)
            if number == int(number):
                return int(number)
        except (ValueError, OverflowError):
            pass
    raise wrong(where, value, "an integer")


def read_double(value: Any, where: str) -> float:
    """Decode a floating-point number; text is accepted."""
    if isinstance(value, (int, float, str)):
        try:
            return float(value)
        except ValueError:
            pass
    raise wrong(where, value, "a number")


def read_boolean(value: Any, where: str) -> bool:
    """Decode a boolean; text, 0 and 1 are accepted."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return value == 1
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise wrong(where, value, "true or false")


def read_object(value: Any, where: str) -> dict[Any, Any]:
    """Check that a value is an object, and return it."""
    if isinstance(value, dict):
        return value
    raise wrong(where, value, "an object")


def read_array(value: Any, where: str) -> list[Any]:
    """Check that a value is an array, and return it."""
    if isinstance(value, list):
        return value
    raise wrong(where, value, "an array")


def read_queue(value: Any, where: str) -> MessageQueue:
    """Decode a queue from an object, a key, or a text that holds its JSON (wire.md §1.13)."""
    if isinstance(value, str) and value[:1] == "{":
        value = loads(value.encode())
    queue = as_key(value)
    if isinstance(queue, MessageQueue):
        return queue
    raise wrong(where, value, "a queue with topic, brokerName and queueId")


def read_any(value: Any, where: str) -> Any:
    """Return any value, unless it is nested so deeply that a body around it could not be decoded."""
    if isinstance(value, (dict, list)):
        check_depth(value, FOREIGN_DEPTH, where)
    return value


TEXT: Final = MemberKind(_same, read_text)
INTEGER: Final = MemberKind(_same, read_integer)
DOUBLE: Final = MemberKind(float, read_double)
BOOLEAN: Final = MemberKind(bool, read_boolean)
QUEUE: Final = MemberKind(_same, read_queue)
ANY: Final = MemberKind(_same, read_any)


def list_of(kind: MemberKind) -> MemberKind:
    """Return the kind of an array; its order is preserved."""
    return MemberKind(
        lambda values: [kind.write(value) for value in values],
        lambda values, where: [kind.read(value, f"{where}[{n}]") for n, value in enumerate(read_array(values, where))],
        lambda values: map(kind.lazily, values),
    )


def set_of(kind: MemberKind) -> MemberKind:
    """Return the kind of an array that represents a set; it is written in ascending order."""
    return MemberKind(
        lambda values: [kind.write(value) for value in sorted(values)],
        # A frozenset, because all empty ones are the same object: subscriptions are many, and most have no tags.
        lambda values, where: frozenset(kind.read(value, where) for value in read_array(values, where)),
    )


def map_of(key: MemberKind, value: MemberKind) -> MemberKind:
    """Return the kind of an object that represents a map; its order is preserved."""
    return MemberKind(
        lambda members: {k: value.write(v) for k, v in members.items()},
        lambda members, where: {
            key.read(k, where): value.read(v, f"{where}.{k}")
            for k, v in read_object(members, where).items()
            if v is not None
        },
        lambda members: Members(
            (k, value.lazily(v)) for k, v in (members.items() if isinstance(members, Mapping) else members)
        ),
    )


def enum_of(names: type[enum.Enum], ordinals: Iterable[enum.Enum] = (), **others: enum.Enum) -> MemberKind:
    """Return the kind of an enum, written by name. Java's ordinal and the names in `others` are accepted, too."""
    by_ordinal = tuple(ordinals) or tuple(names)
    by_name = {member.name: member for member in names} | others

    def read(value: Any, where: str) -> enum.Enum:
        if isinstance(value, int) and 0 <= value < len(by_ordinal):
            return by_ordinal[value]
        if isinstance(value, str) and value in by_name:
            return by_name[value]
        raise wrong(where, value, f"one of {', '.join(by_name)}")

    return MemberKind(lambda member: member.name, read)


def camel(name: str) -> str:
    """Return a name in camelCase: `queueId` for `queue_id`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class Form(NamedTuple):
    """How an object is encoded as text.

    Attributes:
        whole: encodes the object in one step.
        slices: encodes the object in small steps; maps retain their order.
    """

    whole: Callable[[Any], bytes]
    slices: Callable[[Any], Generator[None, None, bytes]] = dumps_slices


IN_ORDER: Final = Form(partial(dumps, sort_keys=False))
SORTED: Final = Form(dumps)
"""Maps among the members are sorted."""
PLAIN: Final = Form(dumps_plain)
"""Encoding ten times faster, for large tables without doubles."""
STANDARD: Final = Form(partial(dumps_standard, sort_keys=False), partial(dumps_slices, standard=True))
"""Standard JSON: keys are quoted, and non-ASCII characters are escaped."""


_KINDS: Final = {
    "str": TEXT,
    "int": INTEGER,
    "float": DOUBLE,
    "bool": BOOLEAN,
    "MessageQueue": QUEUE,
    "list[str]": list_of(TEXT),
    "dict[str, str]": map_of(TEXT, TEXT),
    "dict[str, int]": map_of(TEXT, INTEGER),
    "dict[str, Any]": map_of(TEXT, ANY),
}
"""Kinds of attributes by their annotation, without `| None`."""


class Bean(Generic[T]):
    """Codec of the values of one dataclass.

    Args:
        cls: the dataclass.
        names: wire names that differ from the camelCase of their attribute.
        form: how values are encoded as text.
        left_out: attributes without a member.
        kinds: kinds of attributes whose annotation does not determine the kind.
    """

    def __init__(
        self,
        cls: type[T],
        names: Mapping[str, str] = MappingProxyType({}),
        form: Form = IN_ORDER,
        left_out: Collection[str] = (),
        /,
        **kinds: MemberKind,
    ) -> None:
        self.cls = cls
        self._form = form
        self.noun = cls.__name__
        self._members: list[tuple[str, str, MemberKind]] = []
        self._required: list[tuple[str, str]] = []
        for field in fields(cls):  # type: ignore[arg-type]
            name, member = field.name, names.get(field.name) or camel(field.name)
            if name not in left_out:
                kind = kinds.get(name) or _KINDS[str(field.type).removesuffix(" | None")]
                self._members.append((member, name, kind))
                if field.default is MISSING and field.default_factory is MISSING:
                    self._required.append((member, name))
        self._members.sort()
        self.kind: Final = MemberKind(self.encode, self.decode, self.lazily)

    def encode(self, value: T) -> dict[str, Any]:
        """Return the members that are not None, in alphabetical order as fastjson writes them."""
        members = {}
        for member, name, kind in self._members:
            attribute = getattr(value, name)
            if attribute is not None:
                members[member] = kind.write(attribute)
        return members

    def lazily(self, value: T) -> dict[str, Any]:
        """As `encode`, but convert the content of lists and maps only when it is written."""
        members = {}
        for member, name, kind in self._members:
            attribute = getattr(value, name)
            if attribute is not None:
                members[member] = kind.lazily(attribute)
        return members

    def decode(self, members: Any, where: str = "") -> T:
        """Decode a value with the leniency that the module's docstring describes.

        Raises:
            ProtocolError: a member without default is missing, or one cannot be decoded; the error names its path.
        """
        where = where or self.noun
        found = read_object(members, where)
        arguments = {
            name: kind.read(found[member], f"{where}.{member}")
            for member, name, kind in self._members
            if found.get(member) is not None
        }
        for member, name in self._required:
            if name not in arguments:
                raise ProtocolError(f"{where}: member {member!r} is missing")
        return self.cls(**arguments)

    def dumps(self, value: T) -> bytes:
        """Encode a value as a body."""
        return self._form.whole(self.encode(value))

    def slices(self, value: T) -> Generator[None, None, bytes]:
        """As `dumps`, in small steps. Lists and maps must not change during the encoding; their content may change."""
        return self._form.slices(self.lazily(value))

    def loads(self, data: Octets) -> T:
        """Decode the value of a body; raise ProtocolError for a wrong body."""
        return self.decode(loads(data))


def row_of(bean: Bean[Any]) -> MemberKind:
    """Return the kind of a large table's rows. When the table is written in slices, the fast encoder encodes a row."""
    return MemberKind(bean.encode, bean.decode, lambda value: EncodedValue(dumps_plain(bean.encode(value)), "utf-8"))


class Wrapper(Generic[T]):
    """Codec of a value that is the only member of an object.

    Args:
        noun: name of the body in error texts.
        member: the member's name.
        kind: the member's kind.
        empty: returns the value of an absent body or member.
        form: how the object is encoded as text.
    """

    def __init__(self, noun: str, member: str, kind: MemberKind, empty: Callable[[], T], form: Form = IN_ORDER) -> None:
        self.noun = noun
        self.member = member
        self._kind = kind
        self._empty = empty
        self._form = form

    def dumps(self, value: T) -> bytes:
        """Encode a value as a body."""
        return self._form.whole({self.member: self._kind.write(value)})

    def slices(self, value: T | Iterable[Any]) -> Generator[None, None, bytes]:
        """As `dumps`, in small steps.

        Args:
            value: may have iterators instead of lists, and iterators of pairs instead of maps. Each item is converted
                when it is written.
        """
        return self._form.slices({self.member: self._kind.lazily(value)})

    def loads(self, data: Octets) -> T:
        """Decode the value of a body; raise ProtocolError for a wrong body."""
        value = load_object(data, self.noun).get(self.member)
        found: T = self._empty() if value is None else self._kind.read(value, f"{self.noun}.{self.member}")
        return found


def load_object(data: Octets, noun: str) -> dict[Any, Any]:
    """Decode the object of a body; an absent body is an empty object."""
    return read_object(loads(data), noun) if data else {}
