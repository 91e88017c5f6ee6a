"""Frames, fast: a read split into commands, the usual headers decoded straight into structs, replies by template.

A frame is an i32 length, a word of one type byte and 24 bits of header length, the header, the body
(wire.md §1.1). The kinds that carry the load start with known bytes, because Java writes JSON keys in
alphabetical order: `{"code":310,` tells the struct to decode into. Whatever does not look usual, or does not
fit the struct to the letter (an unknown field, a number out of range), goes to the general codec, so both ways
always give the same values.
"""

from __future__ import annotations

from typing import Any

import msgspec

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
PYTHON = 3
VERSION = 479


class Command(msgspec.Struct, gc=False):
    """A request or a response (wire.md §1.2).

    Attributes:
        code: request code, or response code.
        opaque: what a response is matched to its request by.
        flag: `FLAG_RESPONSE`, `FLAG_ONEWAY`.
        language: the sender's language, see `LanguageCode`.
        version: the sender's version ordinal.
        remark: free text, None when there is none.
        fields: the header fields as text, by wire name. Empty when `header` holds them instead.
        body: the body, empty when there is none.
        serialize_type: 0 for a JSON header, 1 for a binary one.
        header: the header fields already parsed, for the kinds the hot path knows; else None.
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

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether the sender wants no response."""
        return self.flag & FLAG_ONEWAY != 0

    def reply(
        self,
        code: int,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes | memoryview = b"",
    ) -> Command:
        """The response to this request.

        It keeps the opaque and nothing else: like Apache 5.x we answer in the server's own serialize type,
        JSON, whatever the request used (wire.md §1.5).

        Args:
            code: response code.
            remark: text for people.
            fields: response header fields by wire name.
            body: response body.
        """
        return Command(code, self.opaque, FLAG_RESPONSE, PYTHON, VERSION, remark, fields or {}, body)
