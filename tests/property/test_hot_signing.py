"""HMAC-SHA1 of both twins equals Python's `hmac`, for any data in any position of its blocks."""

from __future__ import annotations

import hmac
from base64 import b64encode
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tianzhou import _hot
from tianzhou._hot import signing

TWINS = [pytest.param(signing, id="hashlib"), pytest.param(_hot, id="chosen")]
"""`chosen` is compiled where the processor has SHA instructions."""
SIZES = st.one_of(st.integers(0, 200), st.sampled_from([511, 512, 513, 4096, 70_001]))


@pytest.mark.parametrize("twin", TWINS)
@given(SIZES, SIZES, st.integers(0, 255), st.text(max_size=80))
@example(55 - 20, 20, 0, "k")
@example(64, 0, 1, "k" * 64)
@example(0, 64, 2, "k" * 65)
def test_a_signature_is_that_of_the_content_and_the_body_behind_it(
    twin: ModuleType, head: int, size: int, seed: int, secret: str
) -> None:
    content = bytes((seed + 7 * i) % 256 for i in range(head))
    body = bytes((seed + 11 * i) % 256 for i in range(size))
    key = secret.encode("utf-8", "replace")
    right = b64encode(hmac.new(key, content + body, "sha1").digest()).decode()
    start = twin.begin_hmac(secret)
    assert twin.hmac_text(start, content, memoryview(body)) == right
    assert twin.is_hmac(start, content, body, right)
    assert twin.is_hmac(start, content, memoryview(body), right)
    assert not twin.is_hmac(start, content, body + b"\0", right)
    assert not twin.is_hmac(twin.begin_hmac(secret + "x"), content, body, right)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("place", [0, 13, 26])
def test_one_wrong_character_anywhere_is_no_signature(twin: ModuleType, place: int) -> None:
    start = twin.begin_hmac("secret")
    right = twin.hmac_text(start, b"content", b"body")
    assert not twin.is_hmac(start, b"content", b"body", right[:place] + "*" + right[place + 1 :])


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(
    "claimed", ["", "=", "A" * 27, "A" * 29, "é" * 28, "A" * 27 + "\0", "\ud800" * 28, "x" * 99_999]
)
def test_what_is_no_signature_is_refused_without_an_error(twin: ModuleType, claimed: str) -> None:
    assert not twin.is_hmac(twin.begin_hmac("secret"), b"content", b"body", claimed)


def test_bytes_that_are_no_start_are_refused() -> None:
    compiled = pytest.importorskip("tianzhou._hot._compiled", reason="the compiled twin was not built here")
    with pytest.raises(ValueError, match="no state of an HMAC"):
        compiled.is_hmac(b"", b"content", b"body", "A" * 28)
