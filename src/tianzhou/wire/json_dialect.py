"""JSON in fastjson's dialect (wire.md §1.13): integers and objects as keys, `$ref`, and a lenient decoder.

Bodies are encoded in three forms: `dumps` (for Java peers), `dumps_standard` (quoted keys, ASCII only: routes for
callers that ask for it) and `dumps_pretty` (configuration files, store.md §15.1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

import orjson

from tianzhou.errors import ProtocolError
from tianzhou.model import MessageQueue
from tianzhou.records.checksum import Octets
from tianzhou.wire.json_shape import MAX_DEPTH, check_depth, follow, resolve

_SPACE: Final = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
# fastjson marks the type of a number with a letter behind it.
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[BSLFD]?")
_WORD: Final = re.compile(r"[A-Za-z_$][\w$]*")
_WORDS: Final = {"null": None, "undefined": None, "NaN": None, "true": True, "false": False}
_ESCAPES: Final = {
    **{c: c for c in "\"'\\/"},
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    **{str(n): chr(n) for n in range(8)},
}
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_QUEUE_MEMBERS: Final = frozenset(("brokerName", "queueId", "topic"))


def loads(data: Octets) -> Any:
    """Decode a JSON text in fastjson's dialect.

    Objects become dicts. A bare integer key becomes an int. A key that is an object becomes a `MessageQueue` when it
    has that shape, and otherwise a tuple of its sorted items. The decoder replaces a `$ref` by the value at its path. A
    `$ref` without such a value, or whose value would contain itself, stays unchanged.

    Raises:
        ProtocolError: the text is no JSON, or is nested too deeply; the error names the character and its position.
        LimitExceeded: references add too many values (`maxJsonReferredValues`).
    """
    text = data if isinstance(data, bytes) else bytes(data)
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _Reader(str(text, "utf-8", "replace")).document()
    else:
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
            check_depth(value)
    if b"$ref" in text:
        resolve(value)
    return value


class _Reader:
    """A recursive-descent decoder of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.root: dict[Any, Any] | None = None
        self._queue_keys: dict[int, tuple[int, list[MessageQueue]]] = {}

    def document(self) -> Any:
        """Return the one value of the text."""
        value = self.value()
        if self.peek():
            self.fail("the end")
        return value

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        at = self.at if at is None else at
        found = repr(self.text[at : at + 20]) if at < len(self.text) else "the end"
        raise ProtocolError(f"JSON at character {at}: expected {expected}, found {found}")

    def peek(self) -> str:
        """Return the next character that is no space, "" at the end, and move to it."""
        at = self.at
        if self.text[at : at + 1] in " \t\r\n/\ufeff":
            self.at = at = _SPACE.match(self.text, at).end()  # type: ignore[union-attr]
        return self.text[at : at + 1]

    def value(self) -> Any:
        c = self.peek()
        if c == "{":
            return self.nested(self.object)
        if c == "[":
            return self.nested(self.array)
        if c in _PLAIN:
            return self.string(c)
        if word := _WORD.match(self.text, self.at):
            if (name := word[0]) in ("Set", "TreeSet") and self.text[word.end() : word.end() + 1] == "[":
                self.at = word.end()
                return self.nested(self.array)
            if name not in _WORDS:
                self.fail("a value")
            self.at = word.end()
            return _WORDS[name]
        return self.number()

    def nested(self, read: Callable[[], Any]) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"at most {MAX_DEPTH} levels of nesting")
        self.at += 1
        value = read()
        self.at += 1
        self.depth -= 1
        return value

    def array(self) -> list[Any]:
        items: list[Any] = []
        while (c := self.peek()) != "]":
            if c == ",":
                self.at += 1
                continue
            items.append(self.value())
            if self.peek() not in ("]", ","):
                self.fail("',' or ']'")
        return items

    def object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        referred: dict[str, int] = {}
        if self.root is None:
            self.root = members
        while (c := self.peek()) != "}":
            if c == ",":
                self.at += 1
                continue
            key = self.key(c)
            if type(key) is tuple and (ref := _key_reference(key)):
                # All keys of a map of objects have the same path, so the n-th reference refers to the n-th key.
                referred[ref] = n = referred.get(ref, -1) + 1
                key = self.nth_key(follow(ref[:-5], self.root), n, key)
            if self.peek() != ":":
                self.fail("':'")
            self.at += 1
            members[key] = self.value()
            if self.peek() not in ("}", ","):
                self.fail("',' or '}'")
        return members

    def key(self, c: str) -> Any:
        if c in _PLAIN:
            return self.string(c)
        if word := _WORD.match(self.text, self.at):
            self.at = word.end()
            return word[0]
        if not c:
            self.fail("a key or '}'")
        return as_key(self.value())

    def nth_key(self, members: Any, n: int, otherwise: Any) -> Any:
        """Return the n-th key of a map that is a queue. A map's keys are searched only once for all references."""
        if not isinstance(members, dict):
            return otherwise
        size, keys = self._queue_keys.get(id(members), (-1, []))
        if size != len(members):
            keys = [key for key in members if type(key) is MessageQueue]
            self._queue_keys[id(members)] = len(members), keys
        return keys[n] if n < len(keys) else otherwise

    def number(self) -> int | float:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            self.fail("a value")
        self.at = match.end()
        digits = match[0].rstrip("BSLFD")
        if match[1] is not None or match[2] is not None or "." in digits:
            return float(digits)
        if len(digits) > 4000:
            self.fail("a shorter number", match.start())
        return int(digits)

    def string(self, quote: str) -> str:
        text, start = self.text, self.at
        plain = _PLAIN[quote]
        at = start + 1
        parts: list[str] = []
        while True:
            end = plain.match(text, at).end()  # type: ignore[union-attr]
            parts.append(text[at:end])
            if end >= len(text):
                self.fail("the end of this string", start)
            if text[end] == quote:
                self.at = end + 1
                break
            escape = text[end + 1 : end + 2]
            at = end + 2
            if escape in ("u", "x"):
                digits = text[at : at + (4 if escape == "u" else 2)]
                at += len(digits)
                try:
                    parts.append(chr(int(digits, 16)))
                except ValueError:
                    self.fail("hexadecimal digits", end)
            elif escape in _ESCAPES:
                parts.append(_ESCAPES[escape])
            else:
                self.fail("an escape", end)
        value = "".join(parts)
        if len(parts) > 1 and _SURROGATE.search(value):
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value


def as_key(value: Any) -> Any:
    """Return a value as a dict key: an object becomes a `MessageQueue` or a tuple of sorted items, an array a tuple.

    Raises:
        ProtocolError: a key of such an object is itself an object or array; its text would double with each level.
    """
    if isinstance(value, dict):
        if value.keys() >= _QUEUE_MEMBERS:
            try:
                return MessageQueue(str(value["topic"]), str(value["brokerName"]), int(value["queueId"]))
            except (TypeError, ValueError):
                pass
        if any(isinstance(k, tuple) for k in value):
            raise ProtocolError("JSON: an object that is a key has an object or array as a key itself")
        return tuple(sorted(((str(k), as_key(v)) for k, v in value.items()), key=lambda item: item[0]))
    if isinstance(value, list):
        return tuple(as_key(v) for v in value)
    return value


def _key_reference(key: tuple[Any, ...]) -> str | None:
    """Return the path of a key that is `{"$ref":"$.map.null"}`; None for any other key."""
    if len(key) == 1 and isinstance(item := key[0], tuple) and item[0] == "$ref":
        return item[1] if isinstance(item[1], str) and item[1].endswith(".null") else None
    return None


# fastjson escapes quotes, backslashes, control characters, DEL to NBSP and the two line separators.
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\x7f-\xa0\u2028\u2029]')
# Lists the few characters that are not escaped, because a class of all others takes 9 ms to compile.
_ESCAPED_ASCII: Final = re.compile(r"[^ !#-\[\]-~]")
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(match: re.Match[str]) -> str:
    c = match[0]
    if short := _SHORT.get(c):
        return short
    units = c.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join([f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)])


def _double(value: float) -> str:
    """Return Java's text of a double; NaN and infinities become null."""
    if not math.isfinite(value):
        return "null"
    text = repr(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return text
    sign, digits, exponent = Decimal(text).as_tuple()
    figures = "".join(map(str, digits)).rstrip("0")
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{figures[0]}.{figures[1:] or '0'}E{power}"


_PARTS: Final = 256
"""Pieces of text that `dumps_slices` creates in one slice, in a fraction of a millisecond."""


class EncodedValue(str):
    """An encoded value, for `dumps_slices`."""

    __slots__ = ()


class Members:
    """The members of a large object; each is converted when it is written, in the iterator's order."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Iterator[tuple[Any, Any]]) -> None:
        self.pairs = pairs


def _is_lazy(value: Any) -> bool:
    """Whether a value must be written in slices, because it has parts that are converted when they are written."""
    if type(value) is dict:
        return any(map(_is_lazy, value.values()))
    return isinstance(value, (Members, Iterator))


class _Writer:
    """Encoder of values; its three forms differ in keys, characters and line breaks."""

    def __init__(self, *, sort_keys: bool, standard: bool = False, pretty: bool = False) -> None:
        self.sort_keys = sort_keys
        self.standard = standard
        self.pretty = pretty
        self.escaped = _ESCAPED_ASCII if standard else _ESCAPED
        self.parts: list[str] = []
        self.indent = ""
        self.depth = 0

    def bytes(self, value: Any) -> bytes:
        self.value(value)
        return "".join(self.parts).encode("utf-8", "replace")

    def slices(self, value: Any) -> Iterator[None]:
        """As `value`, in slices. At each yield other tasks may run, and the caller may clear `parts`."""
        if not _is_lazy(value):
            if type(value) is EncodedValue:
                self.parts.append(value)
            else:
                self.value(value)
            if len(self.parts) >= _PARTS:
                yield
            return
        separator, end = "[]"
        if isinstance(value, Iterator):
            for item in value:
                self.parts.append(separator)
                separator = ","
                yield from self.slices(item)
        else:
            separator, end = "{}"
            for key, member in value.pairs if isinstance(value, Members) else value.items():
                if member is None:
                    continue
                self.parts.append(separator)
                separator = ","
                self.key(key)
                self.parts.append(":")
                yield from self.slices(member)
        self.parts.append(end if separator == "," else separator + end)

    def text(self, value: str) -> str:
        return f'"{self.escaped.sub(_escape, value)}"'

    def value(self, value: Any) -> None:
        if isinstance(value, str):
            self.parts.append(self.text(value))
        elif value is None:
            self.parts.append("null")
        elif isinstance(value, bool):
            self.parts.append("true" if value else "false")
        elif isinstance(value, int):
            self.parts.append(str(int(value)))
        elif isinstance(value, float):
            self.parts.append(_double(value))
        elif isinstance(value, (Mapping, Iterable)):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise ProtocolError(f"JSON: more than {MAX_DEPTH} levels of nesting")
            if isinstance(value, MessageQueue):
                self.members(queue_members(value))
            elif isinstance(value, Mapping):
                self.members(value)
            else:
                self.items(value)
            self.depth -= 1
        else:
            raise TypeError(f"{type(value).__name__} {value!r} has no JSON form")

    def items(self, items: Iterable[Any]) -> None:
        append = self.parts.append
        separator = "["
        for item in items:
            append(separator)
            self.value(item)
            separator = ","
        append("]" if separator == "," else "[]")

    def members(self, members: Mapping[Any, Any]) -> None:
        pairs = [(key, value) for key, value in members.items() if value is not None]
        if not pairs:
            self.parts.append("{}")
            return
        if self.sort_keys:
            pairs.sort(key=lambda pair: _sort_key(pair[0]))
        append = self.parts.append
        outer, self.indent = self.indent, self.indent + "\t"
        separator = "{"
        for key, value in pairs:
            append(separator)
            separator = ","
            # fastjson adds a line break only before a quoted key.
            if self.pretty and isinstance(key, str):
                append(f"\n{self.indent}")
            self.key(key)
            append(":")
            self.value(value)
        self.indent = outer
        append(f"\n{outer}}}" if self.pretty else "}")

    def key(self, key: Any) -> None:
        if isinstance(key, str):
            self.parts.append(self.text(key))
        elif self.standard:
            inner = _Writer(sort_keys=True)
            inner.value(key)
            self.parts.append(self.text("".join(inner.parts)))
        else:
            self.value(key)


def _sort_key(key: Any) -> tuple[int, Any]:
    if isinstance(key, str):
        return 2, key
    if isinstance(key, int):
        return 0, key
    return 1, key


def queue_members(queue: MessageQueue) -> dict[str, Any]:
    """Return the object that represents a queue in bodies (wire.md §9)."""
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def dumps(value: Any, *, sort_keys: bool = True) -> bytes:
    """Encode compact JSON as fastjson does: integer and `MessageQueue` keys are bare, None members are omitted.

    Args:
        value: dicts, lists, sets, tuples, text, numbers, `MessageQueue`s.
        sort_keys: whether members are sorted alphabetically; otherwise they retain their order.
    """
    return _Writer(sort_keys=sort_keys).bytes(value)


def dumps_slices(value: Any, *, standard: bool = False) -> Generator[None, None, bytes]:
    """As `dumps` without sorting, in slices. Other tasks may run at each yield.

    Args:
        value: as in `dumps`. Iterators and `Members` of any size, nested in each other or in objects, are written in
            slices; any other value is written in one slice.
        standard: whether to encode as `dumps_standard` does.
    """
    writer = _Writer(sort_keys=False, standard=standard)
    pieces = []
    for _ in writer.slices(value):
        pieces.append("".join(writer.parts).encode("utf-8", "replace"))
        writer.parts.clear()
        yield
    pieces.append("".join(writer.parts).encode("utf-8", "replace"))
    return b"".join(pieces)


def dumps_plain(value: Any) -> bytes:
    """Encode compact JSON as `dumps` without sorting, ten times faster, for large tables of plain values.

    `dumps` encodes values with integer or object keys, None, or sets.
    """
    try:
        data = orjson.dumps(value)
    except TypeError:
        data = b"null"
    return data if b"null" not in data else dumps(value, sort_keys=False)


def dumps_standard(value: Any, *, sort_keys: bool = True) -> bytes:
    """Encode compact JSON for any parser: all keys quoted, non-ASCII characters escaped, None members omitted."""
    if not sort_keys:
        try:
            data = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
        except TypeError:
            data = b"null"
        if data.isascii() and b"null" not in data:
            return data
    return _Writer(sort_keys=sort_keys, standard=True).bytes(value)


def dumps_pretty(value: Any, *, sort_keys: bool = False) -> bytes:
    """Encode JSON as in RocketMQ's configuration files: tabs, one member a line, bare integer keys (store.md §15.1)."""
    return _Writer(sort_keys=sort_keys, pretty=True).bytes(value)
