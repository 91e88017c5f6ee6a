"""The command, and the headers of the hot kinds, as structs that the JSON decoder fills itself.

The structs reject unknown fields, so that the fast path loses no field of a peer: the general codec decodes such a
request and keeps its text fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

FLAG_RESPONSE = 1
"""Bit of `flag`: the frame is a response (wire.md §1.5)."""
FLAG_ONEWAY = 2
"""Bit of `flag`: the sender wants no response."""
VERSION = 479
"""The version that this implementation announces: V5_3_3 (wire.md §1.6)."""
LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY",
    "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS",
)  # fmt: skip
"""Language names by code (wire.md §1.7)."""
LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}
OTHER = LANGUAGE_CODES["OTHER"]
PYTHON = LANGUAGE_CODES["PYTHON"]

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# The two spellings that every client uses. Java reads any other text as false; the general codec handles that.
Switch = Literal["true", "false"]


class Command(msgspec.Struct, gc=False):
    """A request or a response (wire.md §1.2).

    Attributes:
        code: request code, or response code.
        opaque: id that matches a response to its request.
        flag: `FLAG_RESPONSE`, `FLAG_ONEWAY`.
        language: the sender's language, see `LanguageCode`.
        version: the sender's version ordinal.
        remark: free text, None when there is none.
        fields: the header fields as text, by wire name. Empty when `header` holds them all instead.
        body: the body, empty when there is none.
        serialize_type: 0 for a JSON header, 1 for a binary one.
        header: the header fields already parsed, for the kinds the hot path knows; else None.
        signed: with `header`, the signed content of the fields, without the body
            (wire.md §11.1); empty when there is none.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: int = PYTHON
    version: int = VERSION
    remark: str | None = None
    fields: dict[str, str] = {}
    body: bytes | memoryview = b""
    serialize_type: int = 0
    header: Any = None
    signed: bytes = b""

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no response."""
        return self.flag & FLAG_ONEWAY != 0

    def reply(
        self, code: int, remark: str | None = None, fields: dict[str, str] | None = None, body: bytes | memoryview = b""
    ) -> Command:
        """Return the response to this request.

        The response keeps only the opaque. Like Apache 5.x, it uses the server's own serialize type, JSON, whatever the
        request used (wire.md §1.5). Its language is PYTHON: every client that reads the name accepts it or reads it as
        "unknown", and no client acts on it (wire.md §1.7).

        Args:
            code: response code.
            remark: text for people.
            fields: response header fields by wire name.
            body: response body.
        """
        return Command(code, self.opaque, FLAG_RESPONSE, PYTHON, VERSION, remark, fields or {}, body)


class _Common(msgspec.Struct, kw_only=True):
    """Fields that any hot request may carry (wire.md §1.14); attribute `x_text` is the boolean `x` as sent.

    UNSET means an absent field here, because the decoder would read the text "null" as None.
    """

    ns: str | None = None
    nsd_text: Switch | UnsetType = msgspec.field(default=UNSET, name="nsd")
    oway_text: Switch | UnsetType = msgspec.field(default=UNSET, name="oway")
    lo_text: Switch | UnsetType = msgspec.field(default=UNSET, name="lo")
    req_t: Int32 | None = msgspec.field(default=None, name="ReqT")
    access_key: str | None = msgspec.field(default=None, name="AccessKey")
    signature: str | None = msgspec.field(default=None, name="Signature")
    security_token: str | None = msgspec.field(default=None, name="SecurityToken")

    nsd = property(lambda self: _optional(self.nsd_text))
    """Whether resource names already carry the namespace."""
    oway = property(lambda self: _optional(self.oway_text))
    """Hint of broker-internal calls that the sender wants no reply."""
    lo = property(lambda self: _optional(self.lo_text))
    """Whether the queue is a logical one, of a static topic."""


def _optional(text: str | UnsetType) -> bool | None:
    return None if text is UNSET else text == "true"


class SendHeader(_Common, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Header of a send with full names: codes 10 and 324 (wire.md §4.1)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode_text: Switch = msgspec.field(default="false", name="unitMode")
    batch_text: Switch = msgspec.field(default="false", name="batch")
    max_reconsume_times: Int32 | None = None
    bname: str | None = None

    unit_mode = property(lambda self: self.unit_mode_text == "true")
    """Whether the message belongs to a unit."""
    batch = property(lambda self: self.batch_text == "true")
    """Whether the body is a batch (wire.md §4.5)."""


_LETTERS = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "max_reconsume_times": "l",
    "bname": "n",
}


class SendHeaderV2(_Common, kw_only=True, rename=_LETTERS, forbid_unknown_fields=True, gc=False):
    """Header of a send with one-letter names: codes 310, 320 and 325 (wire.md §4.2)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 = 0
    unit_mode_text: Switch = msgspec.field(default="false", name="k")
    max_reconsume_times: Int32 | None = None
    batch_text: Switch = msgspec.field(default="false", name="m")
    bname: str | None = None

    unit_mode = property(lambda self: self.unit_mode_text == "true")
    """Whether the message belongs to a unit."""
    batch = property(lambda self: self.batch_text == "true")
    """Whether the body is a batch (wire.md §4.5)."""


class PullHeader(_Common, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Header of a pull: codes 11 and 361 (wire.md §6.1)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_froward_client_id: str | None = None
    bname: str | None = None


class SendReplyHeader(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Header of the reply to a send (wire.md §4.6)."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on_text: Switch = msgspec.field(default="true", name="TRACE_ON")

    trace_on = property(lambda self: self.trace_on_text == "true")
    """Whether the broker wants traces of this message."""


class PullReplyHeader(msgspec.Struct, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Header of the reply to a pull (wire.md §6.2)."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


def header_fields(header: msgspec.Struct) -> dict[str, str]:
    """Return a hot header's original text fields by wire name; fields at None are left out."""
    return {name: str(value) for name, value in msgspec.to_builtins(header).items() if value is not None}
