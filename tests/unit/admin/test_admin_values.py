"""Properties and text forms of the admin's results."""

import pytest

from tianzhou.admin import Admin, BrokerStatus, GroupLag, QueueLag, TopicDescription
from tianzhou.admin.replicas import Lag, Membership, lag_of
from tianzhou.errors import ClientError, ConfigError
from tianzhou.model import MessageQueue, TopicRoute
from tianzhou.wire.bodies.offsets import TopicOffset
from tianzhou.wire.bodies.replication import HaClient, HaStatus

QUEUE = MessageQueue("T", "b", 0)


def test_lag_counts_what_is_stored_and_not_consumed():
    lag = GroupLag("G", [QueueLag(QUEUE, 10, 4), QueueLag(QUEUE, 5, 5), QueueLag(QUEUE, 3, 8)])
    assert [entry.lag for entry in lag.queues] == [6, 0, 0]
    assert lag.total == 6


def test_a_description_counts_messages():
    described = TopicDescription(
        "T", TopicRoute(), offsets={QUEUE: TopicOffset(3, 10), QUEUE._replace(queue_id=1): TopicOffset(0, 1)}
    )
    assert described.message_count == 8


def test_a_status_reads_what_brokers_write():
    table = {
        "brokerVersionDesc": "V5_3_3",
        "putTps": "12.5 10.0 9.0",
        "getTransferredTps": "3.0 2.0 1.0",
        "commitLogDiskRatio": "0.25",
    }
    status = BrokerStatus("c", "b", 0, "h:1", table)
    assert (status.version, status.put_tps, status.get_tps, status.disk_ratio) == ("V5_3_3", 12.5, 3.0, 0.25)
    silent = BrokerStatus("c", "b", 1, "h:2", error="no reply")
    assert (silent.version, silent.put_tps, silent.get_tps, silent.disk_ratio) == ("", 0.0, 0.0, -1.0)


@pytest.mark.parametrize(
    ("work", "error", "text"),
    [
        (lambda a: a.topics.create("a b"), ClientError, "may only hold letters"),
        (lambda a: a.topics.create("T", read_queue_nums=0), ConfigError, "read_queue_nums of topic T is 0"),
        (lambda a: a.topics.create("T", perm=9), ConfigError, "perm of topic T is 9; add 4 for reading and 2"),
        (lambda a: a.groups.create("DEFAULT_CONSUMER"), ClientError, "placeholder"),
        (lambda a: a.groups.create("G", retries=3), ConfigError, "retries.*settings are consume_enable"),
        (lambda a: a.groups.reset("G", "T"), ClientError, "give one of to_time_ms"),
        (lambda a: a.groups.reset("G", "T", to_offset=1, to_latest=True), ClientError, "give one of to_time_ms"),
    ],
)
async def test_mistakes_are_reported_before_anything_is_sent(work, error, text):
    # No process listens on this port, so a request would fail with another error.
    async with Admin("127.0.0.1:9") as admin:
        with pytest.raises(error, match=text):
            await work(admin)


def slave_at(offset: int) -> HaStatus:
    return HaStatus(master=False, ha_client_runtime_info=HaClient(max_offset=offset, master_addr="h:2"))


@pytest.mark.parametrize(
    ("slave", "runtime", "lag"),
    [
        (slave_at(1000), {}, Lag(0, 0, 0.0)),
        (slave_at(1100), {}, Lag(0, 0, 0.0)),  # measured a moment later
        (slave_at(400), {}, Lag(600, None, None)),
        (slave_at(400), {"putMessageAverageSize": "200.0", "putTps": "0.0 0.0 0.0"}, Lag(600, 3, None)),
        (slave_at(400), {"putMessageAverageSize": "200.0", "putTps": "1.5 1 1"}, Lag(600, 3, 2.0)),
        (slave_at(400), {"putMessageAverageSize": "no number", "putTps": ""}, Lag(600, None, None)),
        (None, {}, None),
    ],
)
def test_how_far_a_slave_is_behind(slave: HaStatus | None, runtime: dict[str, str], lag: Lag | None) -> None:
    assert lag_of(slave, HaStatus(master_commit_log_max_offset=1000), runtime) == lag


def test_who_follows_whom() -> None:
    assert BrokerStatus("c", "b", 0, "h:1").role == "master"
    assert BrokerStatus("c", "b", 1, "h:1").role == "slave"
    follower = BrokerStatus("c", "b", 1, "h:3", copies=slave_at(1))
    assert (follower.role, follower.follows) == ("slave", "h:2")


@pytest.mark.parametrize(
    ("runtime", "role", "of_group"),
    [
        ({}, "slave", None),
        ({"dLegerTerm": "x"}, "slave", None),
        (
            {"dLegerTerm": "7", "dLegerRole": "FOLLOWER", "dLegerSelfId": "n1", "dLegerLeaderId": "n0"},
            "follower",
            Membership("n1", "follower", 7, "n0"),
        ),
        (
            {"dLegerTerm": "7", "dLegerRole": "CANDIDATE", "dLegerSelfId": "n1"},
            "candidate",
            Membership("n1", "candidate", 7, ""),
        ),
    ],
)
def test_the_place_of_a_broker_in_its_group(runtime: dict[str, str], role: str, of_group: Membership | None) -> None:
    one = BrokerStatus("c", "b", 2, "h:3", runtime=runtime)
    assert (one.role, one.membership) == (role, of_group)
