"""Admin operations with brokers of every age and mood."""

import pytest
from own_server import OwnServer
from scripted import ScriptedCluster, within

from tianzhou import Producer, PushConsumer
from tianzhou.admin import Admin
from tianzhou.errors import BrokerError, ClientError, OffsetOutsideQueue
from tianzhou.model import BrokerData, ClusterInfo, Message, MessageQueue, TopicConfig
from tianzhou.wire.bodies.clients import CONSUMER_CONNECTION, Connection, ConsumerConnection
from tianzhou.wire.bodies.route import CLUSTER_INFO
from tianzhou.wire.bodies.tables import KV_TABLE
from tianzhou.wire.bodies.topics import TOPIC_TABLE, TopicTable
from tianzhou.wire.fields import read_header
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(20))

V4_9 = 411


class AgedCluster(ScriptedCluster):
    """Answers admin's questions too, in a version of its own."""

    def __init__(self, brokers=1, queues=2, version=479, online=False) -> None:
        super().__init__(brokers, queues)
        self.kv: dict[str, str] = {}
        self.deleted: list[str] = []
        self.online = online
        for broker in self.brokers:
            broker.max_offset = 100
            broker.answers |= {
                28: lambda c: self.aged(c.reply(0, body=KV_TABLE.dumps({})), version),
                31: lambda c: c.reply(0, fields={"offset": "10"}),
                203: lambda c: c.reply(206, "offline") if not self.online else c.reply(0, body=self.members()),
                17: lambda c: self.create(c),
                215: lambda c: c.reply(0),
                222: lambda c: c.reply(0) if self.online or version >= 413 else c.reply(206, "offline"),
            }

    @staticmethod
    def aged(reply, version):
        reply.version = version
        return reply

    @staticmethod
    def members() -> bytes:
        return CONSUMER_CONNECTION.dumps(ConsumerConnection([Connection("me")]))

    def create(self, command):
        self.topics.add(read_header(command).topic)
        return command.reply(0)

    def _serve(self, connection, command):
        header = read_header(command)
        match command.code:
            case 106:
                datas = {b.name: BrokerData(b.name, "c", {0: b.address}) for b in self.brokers}
                info = ClusterInfo(datas, {"c": sorted(datas)})
                return command.reply(0, body=CLUSTER_INFO.dumps(info))
            case 100:
                self.kv[header.key] = header.value
                return command.reply(0)
            case 102:
                self.kv.pop(header.key, None)
                return command.reply(0)
            case 216:
                self.deleted.append(header.topic)
                return command.reply(0)
            case _:
                return super()._serve(connection, command)


def changes_of(result):
    return [(change.queue.queue_id, change.before, change.after) for change in result]


async def test_a_new_broker_is_named_with_each_queue():
    cluster = AgedCluster()
    async with cluster, Admin(cluster.address) as admin:
        cluster.brokers[0].offsets["T", 1] = 50
        result = await admin.groups.reset("G", "T", to_offset=20)
        assert changes_of(result) == [(0, None, 20), (1, 50, 20)]
        assert [(h.queue_id, h.offset) for h in cluster.brokers[0].asked(222)] == [(0, 20), (1, 20)]
        assert not cluster.brokers[0].asked(15)


async def test_each_queue_goes_back_to_its_own_offset():
    cluster = AgedCluster()
    queues = [MessageQueue("T", "broker-0", number) for number in range(2)]
    async with cluster, Admin(cluster.address) as admin:
        cluster.brokers[0].offsets["T", 0], cluster.brokers[0].offsets["T", 1] = 100, 100
        result = await admin.groups.reset("G", "T", to_offsets={queues[0]: 42, queues[1]: 5})
        assert changes_of(result) == [(0, 100, 42), (1, 100, 10)], "the queue begins at 10"
        assert [(h.queue_id, h.offset) for h in cluster.brokers[0].asked(222)] == [(0, 42), (1, 10)]
        result = await admin.groups.reset("G", "T", to_offsets={queues[1]: 50}, dry_run=True)
        assert changes_of(result) == [(1, 100, 50)]
        assert await admin.groups.reset("G", "T", to_offsets={queues[1]: 50}, queues=[queues[0]]) == []
        with pytest.raises(ClientError, match="no such queue"):
            await admin.groups.reset("G", "T", to_offsets={MessageQueue("T", "broker-0", 9): 50})


async def test_offsets_of_a_dry_run_replace_the_destination_but_for_members_of_an_old_broker():
    queues = [MessageQueue("T", "broker-0", number) for number in range(2)]
    planned = dict.fromkeys(queues, 60)
    cluster = AgedCluster()
    async with cluster, Admin(cluster.address) as admin:
        result = await admin.groups.reset("G", "T", to_latest=True, to_offsets=planned)
        assert [after for _, _, after in changes_of(result)] == [60, 60], "not the 100 of now"
        assert [h.offset for h in cluster.brokers[0].asked(222)] == [60, 60]
    old = AgedCluster(version=V4_9, online=True)
    async with old, Admin(old.address) as admin:
        await admin.groups.reset("G", "T", to_latest=True, to_offsets=planned)
        assert [h.timestamp for h in old.brokers[0].asked(222)] == [-1]
        with pytest.raises(ClientError, match=r"connected members \(me\)"):
            await admin.groups.reset("G", "T", to_offsets=planned)


async def filled(admin):
    return [one.max_offset for one in (await admin.topics.stats("T")).offset_table.values()] == [10, 10]


async def test_members_whose_broker_passes_resets_on_are_not_sent_elsewhere(tmp_path):
    seen = []
    async with OwnServer(tmp_path, use_server_side_reset_offset=False) as server, Admin(server.address) as admin:
        await admin.topics.create("T", read_queue_nums=2, write_queue_nums=2)
        async with Producer("P", server.address) as producer:
            for _ in range(20):
                await producer.send(Message("T", b"x"))
        await admin.groups.create("G")
        await until_async(lambda: filled(admin), "the messages are in the queues")
        await admin.groups.reset("G", "T", to_offset=5)
        consumer = PushConsumer("G", server.address, broker_suspend_max_time_ms=500)
        consumer.subscribe("T", handler=lambda message: seen.append(message.queue_offset))

        async def offsets():
            return [one.consumer_offset for one in (await admin.groups.lag("G", "T")).queues]

        async with consumer:
            await until_async(lambda: len(seen) == 10, "the rest is consumed")
            await admin.groups.reset("G", "T", to_earliest=True)
            await until_async(lambda: len(seen) == 30, "members went to the earliest", within_s=15)
            queue = MessageQueue("T", (await admin.groups.lag("G", "T")).queues[0].queue.broker_name, 0)
            for one in ({"to_offset": 8}, {"to_offsets": {queue: 8}}):
                with pytest.raises(ClientError, match=r"members .* with useServerSideResetOffset=false"):
                    await admin.groups.reset("G", "T", **one)
            await admin.groups.reset("G", "T", to_latest=True)
            async with Producer("P", server.address) as producer:
                for _ in range(2):
                    await producer.send(Message("T", b"last"))
            await until_async(lambda: seen.count(10) == 2, "members consume on", within_s=15)
        assert len(seen) == 32, "no refused reset sent a member back"
        assert await offsets() == [11, 11]
        await admin.groups.reset("G", "T", to_offsets={queue: 8})
        assert await offsets() == [8, 11], "without members the offset is set"


async def test_an_old_broker_moves_connected_members_by_time():
    cluster = AgedCluster(version=V4_9, online=True)
    async with cluster, Admin(cluster.address) as admin:
        await admin.groups.reset("G", "T", to_time_ms=77)
        await admin.groups.reset("G", "T", to_latest=True)
        await admin.groups.reset("G", "T", to_earliest=True)
        assert [h.timestamp for h in cluster.brokers[0].asked(222)] == [77, -1, 0]
        assert not cluster.brokers[0].asked(15)
        with pytest.raises(ClientError, match=r"connected members \(me\)"):
            await admin.groups.reset("G", "T", to_offset=50)


async def test_an_old_broker_stores_offsets_of_groups_that_are_away():
    cluster = AgedCluster(version=V4_9)
    async with cluster, Admin(cluster.address) as admin:
        await admin.groups.reset("G", "T", to_offset=100)
        await admin.groups.reset("G", "T", to_earliest=True)
        assert [h.commit_offset for h in cluster.brokers[0].asked(15)] == [100, 100, 10, 10]


@pytest.mark.parametrize("offset", [-1, 9, 101, 1000])
@pytest.mark.parametrize("version", [V4_9, None])
async def test_an_offset_that_a_queue_does_not_hold_is_refused_and_changes_nothing(offset, version):
    cluster = AgedCluster() if version is None else AgedCluster(version=version)
    async with cluster, Admin(cluster.address) as admin:
        with pytest.raises(OffsetOutsideQueue, match=f"offset {offset} is out of range: queue 0 .* holds 10 to 100; "):
            await admin.groups.reset("G", "T", to_offset=offset)
        with pytest.raises(OffsetOutsideQueue):
            await admin.groups.reset("G", "T", to_offset=offset, dry_run=True)
        assert not cluster.brokers[0].asked(222)
        assert not cluster.brokers[0].asked(15)


async def test_a_dry_run_changes_nothing():
    cluster = AgedCluster()
    async with cluster, Admin(cluster.address) as admin:
        assert changes_of(await admin.groups.reset("G", "T", to_latest=True, dry_run=True)) == [
            (0, None, 100),
            (1, None, 100),
        ]
        assert not cluster.brokers[0].asked(222) + cluster.brokers[0].asked(15)


async def test_a_refused_reset_is_raised():
    cluster = AgedCluster()
    async with cluster, Admin(cluster.address) as admin:
        cluster.brokers[0].answers[222] = lambda c: c.reply(16, "no permission")
        with pytest.raises(BrokerError, match="code 16"):
            await admin.groups.reset("G", "T", to_latest=True)
        unknown = MessageQueue("T", "broker-0", 9)
        with pytest.raises(ClientError, match="no such queue"):
            await admin.groups.reset("G", "T", to_latest=True, queues=[unknown])


async def test_a_topic_goes_to_every_master_with_the_clusters_name():
    cluster = AgedCluster(brokers=2, queues=8)
    cluster.topics.add("c")
    async with cluster, Admin(cluster.address) as admin:
        addresses = await admin.topics.create("New", order=True)
        assert sorted(addresses) == sorted(broker.address for broker in cluster.brokers)
        for broker in cluster.brokers:
            (header,) = broker.asked(17)
            assert (header.topic, header.default_topic, header.order) == ("New", "c", True)
        assert cluster.kv == {"New": "broker-0:8;broker-1:8"}
        await admin.topics.delete("New")
        assert (cluster.kv, cluster.deleted) == ({}, ["New"])
        assert all(broker.asked(215) for broker in cluster.brokers)


async def test_a_silent_broker_gets_the_request_for_a_topic_again():
    cluster = AgedCluster(queues=8)
    cluster.topics.add("c")
    async with cluster, Admin(cluster.address) as admin:
        broker = cluster.brokers[0]

        def hang_up(command):
            if len(broker.asked(17)) >= 3:
                return cluster.create(command)
            for connection in list(broker.connections):
                connection.abort()
            return None

        broker.answers[17] = hang_up
        await admin.topics.create("New")
        assert len(broker.asked(17)) == 3


async def test_a_topic_the_name_server_does_not_show_is_reported(monkeypatch):
    monkeypatch.setattr("tianzhou.admin.topics.VISIBLE_WITHIN_S", 0.1)
    cluster = AgedCluster(queues=8)
    async with cluster, Admin(cluster.address) as admin:
        cluster.brokers[0].answers[17] = lambda c: c.reply(0)
        with pytest.raises(ClientError, match="broker-0 has topic New, but the name server does not show it yet"):
            await admin.topics.create("New")


async def test_an_old_broker_gives_its_topics_in_one_table():
    cluster = AgedCluster(version=V4_9)
    async with cluster, Admin(cluster.address) as admin:
        table = TopicTable({"T": TopicConfig("T", 2, 2, 4)})
        cluster.brokers[0].answers[21] = lambda c: c.reply(0, body=TOPIC_TABLE.dumps(table))
        assert (await admin.topics.config("T"))["broker-0"].perm == 4


async def test_a_broker_that_does_not_answer_is_listed_with_the_reason():
    cluster = AgedCluster(brokers=2)
    async with cluster, Admin(cluster.address) as admin:
        cluster.brokers[1].answers[28] = lambda c: c.reply(2, "[OVERLOAD]")
        well, ill = await admin.cluster.status()
        assert well.error is None
        assert "[OVERLOAD]" in (ill.error or "")
