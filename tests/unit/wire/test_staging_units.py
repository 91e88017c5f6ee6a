"""Units of staged messages: decoding reverses encoding, and invalid units are refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ProtocolError
from tianzhou.wire.staging import StagedMessage, decode_unit, encode_unit

I32 = st.integers(-(2**31), 2**31 - 1)
MESSAGES = st.lists(
    st.builds(StagedMessage, st.text(max_size=20).map(lambda t: t.encode("utf-8", "replace").decode()), I32, I32, I32,
              st.binary(max_size=60), st.binary(max_size=60)),
    max_size=5,
)  # fmt: skip


@given(MESSAGES)
def test_what_goes_in_comes_out(messages: list[StagedMessage]) -> None:
    unit = encode_unit(messages)
    assert len(unit) == sum(message.size for message in messages)
    assert decode_unit(memoryview(unit)) == messages


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_a_unit(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert encode_unit(decode_unit(data)) == data or b"\xef\xbf\xbd" in encode_unit(decode_unit(data))


def test_the_message_that_does_not_fit_is_named() -> None:
    unit = encode_unit([StagedMessage("T", 0, 0, 0, b"p", b"body")] * 2)
    with pytest.raises(ProtocolError, match=r"staged message 1 at byte 26: .* bytes are left"):
        decode_unit(unit[:30])
    with pytest.raises(ProtocolError, match="staged message 1 at byte 26: topic of 1, properties of 1 and body of 4"):
        decode_unit(unit[:-1])
