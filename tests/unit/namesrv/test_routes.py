"""The tables of a name server, over values only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tianzhou.model import DataVersion, QueueData, TopicConfig, TopicRoute
from tianzhou.namesrv.handlers import FLAGS
from tianzhou.namesrv.routes import BROKER_TIMEOUT_MS, NamesrvRouteTable, Registered, Registration, keep_zone

NOW = 1_700_000_000_000
MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"


def topics(*names: str, **changes: Any) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, 4, 8, **changes) for name in names}


def registration(broker_id: int = 0, **changes: Any) -> Registration:
    usual = Registration(
        cluster="DefaultCluster",
        broker_name="broker-a",
        address=MASTER if broker_id == 0 else f"10.0.0.{broker_id + 1}:10911",
        broker_id=broker_id,
        ha_server_address=f"10.0.0.{broker_id + 1}:10912",
        topics=topics("T", "TBW102"),
        data_version=DataVersion(1, NOW, 0),
        enable_acting_master=False,
    )
    return replace(usual, **changes)


@pytest.fixture
def table() -> NamesrvRouteTable:
    table = NamesrvRouteTable()
    assert table.register(registration(), NOW, "conn-1") is not None
    return table


def routed(table: NamesrvRouteTable, topic: str = "T") -> TopicRoute:
    route = table.route(topic)
    assert route is not None
    return route


def answered(answer: Registered | None) -> Registered:
    assert answer is not None
    return answer


def perm(table: NamesrvRouteTable, topic: str = "T") -> int:
    return routed(table, topic).queue_datas[0].perm


def test_a_registered_broker_is_in_the_route_of_its_topics(table: NamesrvRouteTable) -> None:
    route = routed(table)
    assert route.queue_datas == [QueueData("broker-a", 4, 8, 6, 0)]
    assert route.broker_datas[0].broker_addrs == {0: MASTER}
    assert table.route("unknown") is None


def test_a_route_is_a_copy(table: NamesrvRouteTable) -> None:
    route = routed(table)
    route.broker_datas[0].broker_addrs.clear()
    route.queue_datas[0].perm = 0
    assert perm(table) == 6
    assert table.members("broker-a") == {0: MASTER}


def test_single_topic_of_an_unknown_broker_is_refused_but_zero_or_two_are_not() -> None:
    table = NamesrvRouteTable()
    assert table.register(registration(topics=topics("only")), NOW) is None
    assert table.route("only") is None
    assert table.register(registration(topics={}), NOW) is not None
    assert table.register(registration(topics=topics("only")), NOW) is not None  # incremental, now known
    assert table.route("only") is not None


def test_an_incremental_registration_keeps_the_other_topics(table: NamesrvRouteTable) -> None:
    table.register(registration(topics=topics("new"), data_version=DataVersion(2, NOW, 0)), NOW)
    assert set(table.topics()) == {"T", "TBW102", "new"}


def test_topics_missing_from_a_registration_stay_by_default() -> None:
    for delete in (False, True):
        table = NamesrvRouteTable(delete_topics_on_register=delete)
        table.register(registration(topics=topics("old", "T")), NOW)
        table.register(registration(topics=topics("T", "TBW102"), data_version=DataVersion(2, NOW, 0)), NOW)
        assert (table.route("old") is None) is delete


def test_an_unchanged_data_version_does_not_overwrite_a_wiped_permission(table: NamesrvRouteTable) -> None:
    assert table.set_write_permission("broker-a", allowed=False) == 2
    assert perm(table) == 4
    table.register(registration(), NOW)
    assert perm(table) == 4
    table.register(registration(data_version=DataVersion(2, NOW, 0)), NOW)
    assert perm(table) == 6


def test_adding_write_permission_sets_read_and_write(table: NamesrvRouteTable) -> None:
    table.register(registration(topics=topics("X", "Y", perm=1)), NOW)
    assert table.set_write_permission("broker-a", allowed=True) == 4
    assert perm(table, "X") == 6
    assert table.set_write_permission("broker-b", allowed=True) == 0


def test_a_silent_broker_expires_after_its_timeout(table: NamesrvRouteTable) -> None:
    assert table.expired(NOW + BROKER_TIMEOUT_MS) == []
    (live,) = table.expired(NOW + BROKER_TIMEOUT_MS + 1)
    table.remove(live)
    assert table.route("T") is None
    assert table.cluster_info().cluster_addr_table == {}


def test_a_broker_may_name_its_own_timeout() -> None:
    table = NamesrvRouteTable()
    table.register(registration(heartbeat_timeout_ms=10_000), NOW)
    assert table.expired(NOW + 10_000) == []
    assert [live.address for live in table.expired(NOW + 10_001)] == [MASTER]


def test_a_heartbeat_keeps_a_broker(table: NamesrvRouteTable) -> None:
    table.refresh("DefaultCluster", MASTER, NOW + 100_000)
    table.refresh("DefaultCluster", "unknown:1", NOW)
    assert table.expired(NOW + 200_000) == []


def test_a_wall_clock_that_steps_back_expires_nobody(table: NamesrvRouteTable) -> None:
    assert table.expired(NOW - 3_600_000) == []


def test_a_lost_connection_takes_its_brokers_and_only_them(table: NamesrvRouteTable) -> None:
    table.register(registration(broker_name="broker-b", address="10.0.0.9:1"), NOW, "conn-2")
    for live in table.living_on("conn-1"):
        table.remove(live)
    assert [broker.broker_name for broker in routed(table).broker_datas] == ["broker-b"]


def test_the_old_connection_of_a_broker_that_has_come_back_takes_nothing(table: NamesrvRouteTable) -> None:
    table.register(registration(), NOW + 1, "conn-2")
    assert table.living_on("conn-1") == []


def test_unregistering_the_last_address_removes_the_broker_and_its_topics(table: NamesrvRouteTable) -> None:
    table.register(registration(1), NOW, "conn-2")
    table.unregister("DefaultCluster", "broker-a", MASTER)
    assert routed(table).broker_datas[0].broker_addrs == {1: SLAVE}
    table.unregister("DefaultCluster", "broker-a", SLAVE)
    assert table.topics() == []
    table.unregister("DefaultCluster", "broker-a", SLAVE)  # again: no effect


def test_a_slave_learns_where_its_live_master_is(table: NamesrvRouteTable) -> None:
    answer = answered(table.register(registration(1), NOW))
    assert (answer.master_address, answer.ha_server_address) == (MASTER, "10.0.0.1:10912")
    table.unregister("DefaultCluster", "broker-a", MASTER)
    answer = answered(table.register(registration(1), NOW))
    assert answer.master_address is None


def test_a_process_that_changes_its_role_leaves_its_old_id() -> None:
    table = NamesrvRouteTable()
    table.register(registration(1, address=SLAVE), NOW)
    table.register(registration(0, address=SLAVE, data_version=DataVersion(2, NOW, 1)), NOW)
    assert table.members("broker-a") == {0: SLAVE}


def test_a_master_of_an_older_state_is_ignored(table: NamesrvRouteTable) -> None:
    table.register(registration(data_version=DataVersion(1, NOW, 7)), NOW)
    stale = registration(address="10.0.0.66:10911", data_version=DataVersion(9, NOW, 6))
    answer = answered(table.register(stale, NOW))
    assert answer.master_address is None
    assert table.members("broker-a") == {0: MASTER}
    assert table.data_version("DefaultCluster", "10.0.0.66:10911") is None
    newer = replace(stale, data_version=DataVersion(1, NOW, 7))
    table.register(newer, NOW)
    assert table.members("broker-a") == {0: "10.0.0.66:10911"}


def test_topics_come_from_the_master_not_from_a_slave_above_it(table: NamesrvRouteTable) -> None:
    table.register(registration(1, topics=topics("slave-only", "other")), NOW)
    assert table.route("slave-only") is None


def test_without_a_master_the_lowest_slave_brings_the_topics_unless_its_broker_is_older_than_5() -> None:
    for acting, wanted in ((None, None), (False, 6), (True, 4)):
        table = NamesrvRouteTable()
        table.register(registration(1, enable_acting_master=acting), NOW)
        route = table.route("T")
        assert (route and route.queue_datas[0].perm) == wanted


def test_losing_the_master_wipes_write_permission_with_acting_masters() -> None:
    table = NamesrvRouteTable(support_acting_master=True)
    table.register(registration(enable_acting_master=True), NOW)
    table.register(registration(1, enable_acting_master=True), NOW)
    table.unregister("DefaultCluster", "broker-a", MASTER)
    assert perm(table) == 4
    assert routed(table).broker_datas[0].broker_addrs == {0: SLAVE}  # shown as master
    assert table.members("broker-a") == {1: SLAVE}


def test_no_acting_master_is_shown_while_the_topic_is_writable_or_the_switch_is_off() -> None:
    for support, wiped in ((True, False), (False, True)):
        table = NamesrvRouteTable(support_acting_master=support)
        table.register(registration(1, enable_acting_master=True), NOW)
        table.set_write_permission("broker-a", allowed=not wiped)
        route = routed(table)
        assert route.broker_datas[0].broker_addrs == {1: SLAVE}


def test_a_member_group_topic_never_shows_an_acting_master() -> None:
    table = NamesrvRouteTable(support_acting_master=True)
    topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    table.register(registration(1, enable_acting_master=True, topics=topics(topic, "T")), NOW)
    assert routed(table, topic).broker_datas[0].broker_addrs == {1: SLAVE}


def test_the_others_are_notified_of_a_new_smallest_id_and_all_left_of_a_loss() -> None:
    table = NamesrvRouteTable()
    table.register(registration(1), NOW)
    answer = answered(table.register(registration(0), NOW))
    assert answer.change is not None
    assert (answer.change.min_broker_id, answer.change.recipients) == (0, [SLAVE])
    change = table.unregister("DefaultCluster", "broker-a", MASTER)
    assert change is not None
    assert (change.min_broker_id, change.min_broker_address, change.recipients) == (1, SLAVE, [SLAVE])
    assert change.offline_address == MASTER


def test_nobody_is_notified_when_a_higher_id_leaves(table: NamesrvRouteTable) -> None:
    table.register(registration(1), NOW)
    assert table.unregister("DefaultCluster", "broker-a", SLAVE) is None


def test_data_version_is_compared_whole(table: NamesrvRouteTable) -> None:
    assert not table.changed("DefaultCluster", MASTER, DataVersion(1, NOW, 0))
    assert table.changed("DefaultCluster", MASTER, DataVersion(1, NOW, 1))
    assert table.changed("DefaultCluster", MASTER, DataVersion(1, NOW + 1, 0))
    assert table.changed("DefaultCluster", "unknown:1", DataVersion(1, NOW, 0))


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(table: NamesrvRouteTable) -> None:
    table.register(registration(cluster="Other", broker_name="broker-b", address="10.0.0.9:1"), NOW)
    table.delete_topic("T", "Other")
    assert [queue.broker_name for queue in routed(table).queue_datas] == ["broker-a"]
    table.delete_topic("T", "nowhere")
    assert table.route("T") is not None
    table.delete_topic("T")
    assert table.route("T") is None
    table.delete_topic("T")


def test_queues_are_added_only_for_registered_brokers(table: NamesrvRouteTable) -> None:
    assert table.add_queues("fresh", [QueueData("broker-a", 2, 2, 6)])
    assert not table.add_queues("fresh", [QueueData("broker-x", 2, 2, 6)])
    assert [queue.broker_name for queue in routed(table, "fresh").queue_datas] == ["broker-a"]


def test_topic_lists(table: NamesrvRouteTable) -> None:
    flagged = topics("unit", topic_sys_flag=1) | topics("sub", topic_sys_flag=2) | topics("both", topic_sys_flag=3)
    table.register(registration(cluster="Other", broker_name="broker-b", address="b:1", topics=flagged), NOW)
    wanted = {311: {"unit", "both"}, 312: {"sub", "both"}, 313: {"sub"}}
    assert {code: set(table.topics_flagged(*flags)) for code, flags in FLAGS.items()} == wanted
    assert set(table.topics_of_cluster("Other")) == {"unit", "sub", "both"}
    assert table.topics_of_cluster("nowhere") == []
    names, address = table.system_topics()
    assert set(names) == {"DefaultCluster", "Other", "broker-a", "broker-b"}
    assert address in {MASTER, "b:1"}


def test_filter_servers_are_listed_by_broker_address(table: NamesrvRouteTable) -> None:
    table.register(registration(filter_servers=["f:1"]), NOW)
    assert routed(table).filter_server_table == {MASTER: ["f:1"]}
    table.register(registration(filter_servers=[]), NOW)
    assert routed(table).filter_server_table == {}


def test_a_zone_keeps_its_own_brokers_and_those_without_a_master(table: NamesrvRouteTable) -> None:
    table.register(registration(zone_name="Hangzhou", filter_servers=["f:1"]), NOW)
    table.register(registration(broker_name="far", address="far:1", zone_name="beijing", filter_servers=["f:2"]), NOW)
    table.register(registration(1, broker_name="orphan", address="orphan:1", zone_name="beijing"), NOW)
    route = routed(table)
    kept = keep_zone(route, "hangzhou")
    assert {broker.broker_name for broker in kept.broker_datas} == {"broker-a", "orphan"}
    assert {queue.broker_name for queue in kept.queue_datas} == {"broker-a", "orphan"}
    assert kept.filter_server_table == {MASTER: ["f:1"]}


def test_a_static_topic_brings_its_mappings_into_the_route() -> None:
    table = NamesrvRouteTable()
    mapping = {"bname": "broker-a", "topic": "T", "totalQueues": 4, "epoch": 1}
    table.register(registration(queue_mappings={"T": mapping}), NOW)
    assert routed(table).topic_queue_mapping_by_broker == {"broker-a": mapping}
    other = table.route("TBW102")
    assert other is not None
    assert other.topic_queue_mapping_by_broker is None
