"""Kinds of failed sends: one table for the outbox and for `durable=True`."""

from __future__ import annotations

import pytest

from tianzhou import errors
from tianzhou.client.producer.send_failures import RESPONSE_KINDS, FailureKind, failure_kind
from tianzhou.errors import BrokerError, TianzhouError
from tianzhou.wire.codes import ResponseCode

TEMPORARY, UNCERTAIN, PERMANENT = FailureKind.TEMPORARY, FailureKind.UNCERTAIN, FailureKind.PERMANENT
CURED = {2, 14, 215, 211, 501, 1500, -1002, -1004, -1006}
"""Codes of states of the cluster that pass."""


@pytest.mark.parametrize("code", [*ResponseCode, 4711])
def test_every_response_code_has_a_kind(code: int) -> None:
    expected = TEMPORARY if code in CURED else UNCERTAIN if code in (1, -1000) else PERMANENT
    assert failure_kind(BrokerError(code, "text of a server")) is expected


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (1, "in-sync replicas not enough", TEMPORARY),
        (1, "java.lang.NullPointerException", UNCERTAIN),
        (16, "the broker[10.0.0.1] sending message is forbidden", TEMPORARY),
        (16, "the topic[orders] sending message is forbidden", TEMPORARY),
        (16, "no permission to send to topic orders", PERMANENT),
        (13, "in-sync replicas not enough", PERMANENT),
    ],
)
def test_remarks_that_brokers_of_rocketmq_have_too_decide(code: int, remark: str, kind: FailureKind) -> None:
    assert failure_kind(BrokerError(code, remark)) is kind


OF_CLIENTS = {
    errors.ConnectFailed: TEMPORARY,
    errors.ConnectionLost: TEMPORARY,
    errors.RequestTimeout: TEMPORARY,
    errors.TooManyRequests: TEMPORARY,
    errors.NotDurable: TEMPORARY,
    errors.NoWritableQueue: TEMPORARY,
    errors.TopicUnavailable: PERMANENT,
    errors.ClientError: PERMANENT,
    errors.ProtocolError: PERMANENT,
    errors.LimitExceeded: PERMANENT,
    errors.IllegalName: PERMANENT,
}


@pytest.mark.parametrize("kind", OF_CLIENTS)
def test_errors_of_the_client(kind: type[TianzhouError]) -> None:
    assert failure_kind(kind("text")) is OF_CLIENTS[kind]


def test_the_table_has_no_kind_that_is_the_default() -> None:
    assert PERMANENT not in RESPONSE_KINDS.values()
