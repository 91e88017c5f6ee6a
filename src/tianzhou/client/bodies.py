"""Message bodies as values: encodes JSON values, text, dataclasses and models to bytes, and decodes them. Pure.

The user property `content_type` of a message names the format of its body, also for programs in other languages.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from tianzhou.errors import ClientError, ConfigError, UndecodableBody
from tianzhou.model import Message, MessageExt, names
from tianzhou.remoting.callbacks import failure_of

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

_LONGEST_REASON = 300
_MOST_COMPLAINTS = 3


# --- to bytes ------------------------------------------------------------------------------------------------


def encode_body(body: object) -> tuple[bytes, str | None]:
    """Encode a value as a message body.

    Args:
        body: bytes, which stay as they are; text; or a value that JSON can represent: dicts, lists, numbers,
            dataclasses, `TypedDict`s, msgspec's structs, pydantic's models (by their aliases), times, UUIDs, decimals,
            enums. NaN and infinite floats become `null`.

    Returns:
        The bytes, and their content type; None for bytes.

    Raises:
        ClientError: the value has none of these types.
    """
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body), None
    try:
        if isinstance(body, str):
            return body.encode(), TEXT
        return _to_json(body), JSON
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ClientError(
            f"a body of type {type(body).__name__} cannot be sent: {error}; give bytes, a text, or what becomes JSON: "
            "a dict, a list, a dataclass, a pydantic model"
        ) from error


def encode_message(
    topic: str,
    body: object,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = "",
    properties: Mapping[str, str] | None = None,
    delay_level: int = 0,
    sharding_key: str | None = None,
) -> Message:
    """Return a message whose body is an encoded value; every method that takes a `Message` accepts it.

    Args:
        topic: the topic to send to.
        body: see `encode_body`.
        tags: one tag, by which consumers can select messages.
        keys: business keys to find the message by later.
        properties: user properties; `content_type` is added unless it is among them or the body is bytes.
        delay_level: 1 to 18 (1 s … 2 h); 0 delivers at once.
        sharding_key: messages with the same sharding key preserve their order.

    Raises:
        ClientError: the body cannot be encoded.
    """
    encoded, content_type = encode_body(body)
    own = {names.CONTENT_TYPE: content_type} if content_type is not None else {}
    return Message(
        topic,
        encoded,
        tags,
        keys,
        properties={**own, **(properties or {})},
        delay_level=delay_level,
        sharding_key=sharding_key,
    )


def _to_json(body: object) -> bytes:
    if hasattr(body, "model_dump_json"):
        text: str = body.model_dump_json(by_alias=True)
        return text.encode()
    kind: Any = type(body)
    if hasattr(kind, "__pydantic_serializer__"):
        encoded: bytes = _adapter(kind).dump_json(body, by_alias=True)
        return encoded
    return msgspec.json.encode(body, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"JSON has nothing for a {type(value).__name__}")


# --- from bytes ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class BodyDecoder:
    """Decoder from message bodies to values of one type.

    Attributes:
        name: name of the type, for logs.
        decode: returns the value of a body's bytes, or raises an error.
        only_json: whether bodies whose `content_type` is not JSON are rejected.
    """

    name: str
    decode: Callable[[bytes], Any]
    only_json: bool = False

    def __call__(self, message: MessageExt) -> Any:
        """Return the value of a message's body.

        Raises:
            UndecodableBody: the body cannot be decoded.
        """
        reason = ""
        try:
            if self.only_json and not is_json(told := message.properties.get(names.CONTENT_TYPE)):
                reason = f"its {names.CONTENT_TYPE} is {told}, and JSON is expected"
            else:
                return self.decode(bytes(message.body))
        except BaseException as error:  # noqa: BLE001 - untrusted bytes, and maybe a decoder of the user
            reason = _reason(failure_of(error))
        raise UndecodableBody(
            f"message {message.msg_id} of topic {message.topic} at offset {message.queue_offset} of queue "
            f"{message.queue_id}: its body is no {self.name}: {reason}",
            reason=reason,
        )


def decode_body(message: MessageExt, body: Any) -> Any:
    """Return the value of a message's body, for messages from a poll, an iteration or a reply.

    Args:
        message: the message.
        body: type of the value, as `body=` of a handler: a dataclass, `TypedDict`, pydantic model or msgspec struct,
            `dict`, `list[int]` or `Any` for JSON; `str` for text, `bytes`; or a function that takes bytes.

    Raises:
        UndecodableBody: the body does not have this type.
        ConfigError: bodies cannot be decoded to this type.
    """
    if isinstance(body, Hashable):
        return _known_decoder(body)(message)
    return decoder_of(body)(message)


def decoder_of(kind: Any) -> BodyDecoder:
    """Return the decoder for a type, or for a function.

    Args:
        kind: see `decode_body`.

    Raises:
        ConfigError: bodies cannot be decoded to this type.
    """
    name = getattr(kind, "__name__", None) if isinstance(kind, type) and not typing.get_args(kind) else None
    name = name or str(kind)
    if kind is bytes:
        return BodyDecoder(name, bytes)
    if kind is str:
        return BodyDecoder(name, bytes.decode)
    if inspect.isroutine(kind) or isinstance(kind, functools.partial):
        return BodyDecoder(f"body that {getattr(kind, '__qualname__', 'the decoder')} takes", kind)
    if hasattr(kind, "parse_raw") and not hasattr(kind, "model_validate_json"):
        raise ConfigError(f"body={name} is a model of pydantic 1; make it one of pydantic 2: pip install 'pydantic>=2'")
    try:
        if _has_model(kind, set()):
            return BodyDecoder(name, _adapter(kind).validate_json, only_json=True)
        found = next(_strangers(msgspec.inspect.type_info(kind), set()), None)
        if found is None:
            return BodyDecoder(name, msgspec.json.Decoder(kind).decode, only_json=True)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"body={name}: nothing can be decoded to it: {error}") from error
    raise ConfigError(
        f"body={name}: JSON says nothing of how to make a {found}; make it a dataclass, a TypedDict or a pydantic "
        "model, or give a function that makes it of bytes"
    )


@functools.lru_cache(maxsize=256)
def _known_decoder(kind: Any) -> BodyDecoder:
    return decoder_of(kind)


def is_json(content_type: str | None) -> bool:
    """Whether a body may be JSON by its content type. None may be JSON: other languages' senders rarely set a type."""
    if not content_type:
        return True
    media = content_type.partition(";")[0].strip().lower()
    return media == JSON or media.endswith("+json") or media.startswith("text/")


@functools.lru_cache(maxsize=256)
def _adapter(kind: Any) -> Any:
    # Imported here, because only programs with pydantic models have pydantic.
    try:
        from pydantic import TypeAdapter
    except ImportError as error:
        raise ConfigError(f"body {kind} needs pydantic 2, which is not here: pip install 'pydantic>=2'") from error
    return TypeAdapter(kind)


def _has_model(kind: Any, seen: set[int]) -> bool:
    """Whether pydantic has to decode a type: it is or contains a model, or has bounds from pydantic's fields."""
    if id(kind) in seen:
        return False
    seen.add(id(kind))
    if hasattr(kind, "__pydantic_validator__") or type(kind).__module__.partition(".")[0] == "pydantic":
        return True
    inner = [*typing.get_args(kind), *getattr(kind, "__metadata__", ())]
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or typing.is_typeddict(kind)):
        inner += typing.get_type_hints(kind, include_extras=True).values()
    return any(_has_model(part, seen) for part in inner)


def _strangers(info: Any, seen: set[int]) -> Iterator[str]:
    """Yield the classes in a type that JSON cannot represent. The check runs at the start, before the first message."""
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        yield getattr(info.cls, "__name__", str(info.cls))
    for name in getattr(info, "__struct_fields__", ()):
        value = getattr(info, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, (msgspec.inspect.Type, msgspec.inspect.Field)):
                yield from _strangers(part, seen)


def _reason(error: Exception) -> str:
    # Only fields and rules of pydantic's errors are logged, because logs must not contain the body's content.
    complaints = getattr(error, "errors", None)
    if callable(complaints):
        found = complaints(include_url=False, include_context=False, include_input=False)
        parts = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in found]
        more = len(parts) - _MOST_COMPLAINTS
        text = "; ".join(parts[:_MOST_COMPLAINTS]) + (f"; and {more} more" if more > 0 else "")
    elif isinstance(error, msgspec.MsgspecError):
        text = str(error)
    elif isinstance(error, UnicodeDecodeError):
        text = f"it is no UTF-8: {error.reason} at byte {error.start}"
    else:
        text = f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:_LONGEST_REASON]
