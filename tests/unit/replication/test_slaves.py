"""A master's evaluation of its slaves' reports (broker.md §17)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianzhou.errors import ProtocolError
from tianzhou.replication.slaves import LogBounds, Slave, Slaves, SlaveSend, speaks_as_slave
from tianzhou.store.results import PutStatus
from tianzhou.store.settings import StoreSettings
from tianzhou.wire.codes import RequestCode
from tianzhou.wire.command import ROCKETMQ, Command, encode
from tianzhou.wire.ha import encode_report

SEGMENT = 1000
REQUEST = encode(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
REQUEST_IN_BYTES = encode(Command(RequestCode.GET_BROKER_RUNTIME_INFO, serialize_type=ROCKETMQ))


def slave(now_s: float = 0.0, **settings: object) -> Slave:
    return Slave("10.0.0.2:1", StoreSettings(ha_transfer_batch_size=300, **settings), now_s)  # type: ignore[arg-type]


def log(end: int, begin: int = 0) -> LogBounds:
    return LogBounds(begin, end, SEGMENT)


def send_all(one: Slave, bounds: LogBounds, now_s: float) -> list[SlaveSend]:
    found = []
    while isinstance(step := one.next(bounds, now_s), SlaveSend) and step.size:
        one.was_sent(step, now_s)
        found.append(step)
    return found


def test_an_empty_slave_gets_the_whole_log_in_stretches_that_stay_inside_segments() -> None:
    one = slave()
    one.reported(0, log(2500, begin=1000), 0.0)
    stretches = send_all(one, log(2500, begin=1000), 0.0)
    assert [s.offset for s in stretches] == [1000, 1300, 1600, 1900, 2000, 2300]
    assert sum(s.size for s in stretches) == 1500
    assert all(s.offset // SEGMENT == (s.offset + s.size - 1) // SEGMENT for s in stretches)


def test_who_is_far_behind_gets_more_at_once() -> None:
    end = (5 << 20) + 1000
    one, log_ = slave(), LogBounds(0, end, 1 << 30)
    one.reported(0, log_, 0.0)
    sizes = [step.size for step in send_all(one, log_, 0.0)]
    assert sizes[0] == 256 << 10
    assert max(sizes) < 4 << 20  # the buffer of RocketMQ's slaves
    assert sizes[-2] == 300
    assert sum(sizes) == end
    two = slave()
    two.reported(0, log_, 0.0)
    assert next(step.size for step in send_all(two, LogBounds(0, 200 << 10, 1 << 30), 0.0)) == 200 << 10


def test_as_in_apache_an_empty_slave_may_get_the_last_segment_only() -> None:
    one = slave(sync_from_last_file=True)
    one.reported(0, log(2500), 0.0)
    assert send_all(one, log(2500), 0.0)[0].offset == 2000


@pytest.mark.parametrize("offset", [-1, 2501, 1 << 62])
def test_who_reports_what_the_master_has_not_got_is_refused(offset: int) -> None:
    one = slave()
    with pytest.raises(ProtocolError, match=r"10\.0\.0\.2:1 reports"):
        one.reported(offset, log(2500), 0.0)
    assert one.acked == -1


def test_who_reports_more_than_it_was_sent_is_refused() -> None:
    one = slave()
    one.reported(100, log(2500), 0.0)
    with pytest.raises(ProtocolError, match="was sent the log up to 100"):
        one.reported(2000, log(2500), 0.0)
    assert one.acked == 100


def test_what_has_expired_cannot_be_sent() -> None:
    with pytest.raises(ProtocolError, match="log begins at 1000"):
        slave().reported(999, log(2500, begin=1000), 0.0)


def test_a_heartbeat_comes_when_nothing_was_sent_for_long_enough() -> None:
    one = slave(ha_send_heartbeat_interval=5000)
    one.reported(100, log(100), 10.0)
    step = one.next(log(100), 10.0)
    assert step == SlaveSend(100, 0)
    one.was_sent(step, 10.0)
    assert one.next(log(100), 12.0) == 15.0
    assert one.next(log(100), 15.0) == SlaveSend(100, 0)


def test_flow_control_lets_so_many_bytes_through_in_a_second() -> None:
    one = slave(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=700)
    one.reported(1, log(2500), 0.0)
    assert sum(s.size for s in send_all(one, log(2500), 0.0)) == 700
    assert one.next(log(2500), 0.5) == 1.0
    assert sum(s.size for s in send_all(one, log(2500), 1.0)) == 700


def test_a_slave_that_says_nothing_counts_as_gone() -> None:
    one = slave(ha_housekeeping_interval=20_000)
    one.reported(0, log(10), 5.0)
    assert not one.is_silent(25.0)
    assert one.is_silent(25.1)


def table(acked: list[int], **settings: object) -> Slaves:
    found = Slaves(StoreSettings(broker_role="SYNC_MASTER", ha_max_gap_not_in_sync=100, **settings))  # type: ignore[arg-type]
    for at in acked:
        one = slave()
        one.acked = at
        found.connected.append(one)
    return found


@pytest.mark.parametrize(
    ("acked", "settings", "status"),
    [
        ([], {}, PutStatus.SLAVE_NOT_AVAILABLE),
        ([-1], {}, PutStatus.SLAVE_NOT_AVAILABLE),
        ([899], {}, PutStatus.SLAVE_NOT_AVAILABLE),  # 100 bytes behind and more
        ([950], {}, None),
        ([1000], {}, PutStatus.PUT_OK),
        ([1000, 950], {"in_sync_replicas": 3}, None),
        ([1000, 100], {"in_sync_replicas": 3}, PutStatus.SLAVE_NOT_AVAILABLE),
        ([1000, 1000], {"in_sync_replicas": 3}, PutStatus.PUT_OK),
        ([1000, 100], {"in_sync_replicas": 3, "enable_auto_in_sync_replicas": True}, PutStatus.PUT_OK),
        ([], {"enable_auto_in_sync_replicas": True}, PutStatus.PUT_OK),
        (
            [],
            {"in_sync_replicas": 3, "enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 2},
            PutStatus.SLAVE_NOT_AVAILABLE,
        ),
    ],
)
def test_what_copies_make_of_a_message(acked: list[int], settings: dict[str, object], status: PutStatus | None) -> None:
    assert table(acked, **settings).verdict(1000, 1000) is status


@pytest.mark.parametrize(
    ("acked", "settings", "refused"),
    [
        ([], {}, False),
        ([], {"min_in_sync_replicas": 2}, True),
        ([-1], {"min_in_sync_replicas": 2}, True),  # it has not reported its position yet
        ([900], {"min_in_sync_replicas": 2}, True),
        ([901], {"min_in_sync_replicas": 2}, False),
        ([901], {"min_in_sync_replicas": 2, "enable_auto_in_sync_replicas": True}, False),
        ([1000, 900], {"min_in_sync_replicas": 3}, True),
        ([1000, 901], {"min_in_sync_replicas": 3}, False),
        ([], {"in_sync_replicas": 3}, False),  # stored, and SLAVE_NOT_AVAILABLE
    ],
)
def test_too_few_in_sync_are_a_reason_to_store_nothing(
    acked: list[int], settings: dict[str, object], *, refused: bool
) -> None:
    assert (table(acked, **settings).refusal(1000) is not None) is refused


def test_settings_count_as_soon_as_they_change() -> None:
    one = table([1000, 990])
    assert one.copied(1000) == 1000
    one.settings.in_sync_replicas = 3
    assert one.copied(1000) == 990
    one.settings.in_sync_replicas = 4
    assert one.verdict(1000, 1000) is PutStatus.SLAVE_NOT_AVAILABLE
    one.settings.enable_auto_in_sync_replicas = True
    assert one.copied(1000) == 990
    one.settings.ha_max_gap_not_in_sync = 10
    assert one.copied(1000) == 1000


def test_an_async_master_waits_for_nobody() -> None:
    assert Slaves(StoreSettings()).verdict(1000, 1000) is PutStatus.PUT_OK


@given(st.lists(st.integers(-1, 1000), max_size=6), st.integers(2, 5))
def test_as_many_slaves_as_required_have_what_counts_as_copied(acked: list[int], replicas: int) -> None:
    copied = table(acked, in_sync_replicas=replicas).copied(1000)
    have = sum(at >= copied for at in acked)
    assert copied == -1 or have >= replicas - 1
    assert all(sum(at >= more for at in acked) < replicas - 1 for more in range(max(copied, 0) + 1, 1002))


@pytest.mark.parametrize("offset", [0, 1, 2500, 9_999, 300 << 30])
def test_reports_are_those_of_a_slave_whatever_it_has(offset: int) -> None:
    # A slave that is ahead has data that its master lost; one that waits for a reply may repeat its report.
    for hello in (encode_report(offset), encode_report(offset) * 2, encode_report(offset) + encode_report(offset)[:3]):
        assert speaks_as_slave(hello, log(2500))


@pytest.mark.parametrize("end", [0, 2500, 800 << 30])
@pytest.mark.parametrize(
    "hello",
    [
        REQUEST,
        REQUEST[:8],
        REQUEST_IN_BYTES,
        REQUEST_IN_BYTES[:8],
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("16030100c8010000"),  # TLS
        bytes.fromhex("0000002b00120003000000070005"),  # Kafka
        b"\xff" * 32,
        encode_report(-1),
        encode_report(100) + encode_report(200),
    ],
)
def test_what_others_send_is_no_report(hello: bytes, end: int) -> None:
    # The length at the beginning of a request may equal the position of a slave whose master's log is that long.
    short_of_it = len(hello) == 8 and hello[0] == 0 and end > int.from_bytes(hello)
    assert speaks_as_slave(hello, log(end)) == short_of_it
