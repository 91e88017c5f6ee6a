"""Bodies of DLedger's requests and answers, as DLedger 0.3.1.2 writes them with fastjson 1.2.83 (broker.md §19.8)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ProtocolError
from tianzhou.wire.bodies import dledger
from tianzhou.wire.bodies.dledger import (
    CODES,
    OURS,
    REQUESTS,
    RESPONSES,
    Entry,
    HeartBeatResponse,
    PushRequest,
    PushType,
    StretchRequest,
    VoteResponse,
    VoteResult,
    decode,
    encode,
    read_stretch,
    stretch_fields,
)
from tianzhou.wire.codes import DLedgerRequestCode

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "wire" / "dledger-0.3.1.2-bodies.tsv"
ROWS = [line.split("\t", 1) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]

integers = st.integers(-(2**63), 2**63 - 1)
small = st.integers(-(2**31), 2**31 - 1)
names = st.text(max_size=40) | st.none()
entries = st.builds(
    Entry, body=st.binary(max_size=60), body_crc=small, chain_crc=small, channel=small, index=integers, magic=small,
    pos=integers, size=small, term=integers,
)  # fmt: skip


@pytest.mark.parametrize(("name", "text"), ROWS, ids=[f"{n}-{row[0]}" for n, row in enumerate(ROWS)])
def test_bodies_are_read_and_written_as_apache_has_them(name: str, text: str) -> None:
    message = decode(getattr(dledger, name), text.encode())
    assert encode(message) == text.encode()


def test_every_code_has_a_request_and_an_answer() -> None:
    assert set(REQUESTS) == set(RESPONSES) == set(DLedgerRequestCode)
    assert {CODES[kind] for kind in REQUESTS.values()} == set(DLedgerRequestCode)


@given(
    st.builds(
        PushRequest,
        batch_entry=st.lists(entries, max_size=3),
        commit_index=integers,
        entry=entries | st.none(),
        type=st.sampled_from(PushType),
        group=names,
        leader_id=names,
        local_id=names,
        remote_id=names,
        term=integers,
        code=small,
        tianzhou=small,
    )
)
def test_pushes_come_out_as_they_went_in(push: PushRequest) -> None:
    assert decode(PushRequest, encode(push)) == push


@given(
    st.builds(
        StretchRequest,
        commit_index=integers,
        count=small,
        end_index=integers,
        entries=st.binary(max_size=60),
        previous_index=integers,
        previous_term=integers,
        group=names,
        leader_id=names,
        term=integers,
        tianzhou=small,
    )
)
def test_stretches_come_out_as_they_went_in(stretch: StretchRequest) -> None:
    fields = stretch_fields(stretch)
    assert all(isinstance(value, str) for value in fields.values())
    assert read_stretch({**fields, "other": "1"}, stretch.entries) == stretch


@given(
    st.sampled_from([kind for kind in (*REQUESTS.values(), *RESPONSES.values()) if kind is not StretchRequest]),
    st.binary(max_size=80),
)
def test_bytes_that_are_no_body_are_refused_as_such(kind: type, body: bytes) -> None:
    with suppress(ProtocolError):
        assert isinstance(decode(kind, body), kind)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (PushRequest, b'{"type":"DESTROY"}'),
        (PushRequest, b'{"entry":{"index":1}}'),
        (PushRequest, b'{"term":99999999999999999999}'),
        (PushRequest, b'{"entry":{"body":"%%%","index":1,"magic":1,"pos":0,"size":49,"term":1}}'),
        (VoteResponse, b'{"voteResult":7}'),
        (VoteResponse, b'{"group":"' + b"g" * 300 + b'"}'),
        (VoteResponse, b"[" * 100_000),
        (HeartBeatResponse, b'{"code":"\xff"}'),
    ],
)
def test_what_is_wrong_with_a_body_is_named(kind: type, body: bytes) -> None:
    with pytest.raises(ProtocolError, match=kind.__name__):
        decode(kind, body)


def test_a_stretch_without_its_fields_is_refused() -> None:
    with pytest.raises(ProtocolError, match="previousIndex"):
        read_stretch({"term": "4", "commitIndex": "1", "count": "1", "endIndex": "3"}, b"")


def test_members_nobody_knows_are_passed_over_and_ours_is_one_for_apache() -> None:
    text = b'{"voteResult":"ACCEPT","term":4,"someday":{"a":[1,{"b":2}]},"group":null}'
    assert decode(VoteResponse, text).vote_result is VoteResult.ACCEPT
    assert encode(HeartBeatResponse(term=4, tianzhou=OURS)) == b'{"code":200,"term":4,"tianzhou":1}'
    assert decode(HeartBeatResponse, b'{"code":200}').tianzhou == 0
