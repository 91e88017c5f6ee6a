"""Requests of our producers to brokers in cases that are rare at real ones."""

import asyncio
import http.server
import socket
import threading

import pytest
from scripted import ScriptedBroker, ScriptedCluster, noting, one_broker, record, within

from client_probe import ClientProbe
from tianzhou import Message, Producer, SendStatus, TransactionProducer, TransactionState
from tianzhou.client import RETRY_CODES_4X, ClientInstance
from tianzhou.client.cluster.address_server import lookup_url
from tianzhou.errors import BatchPartlySent, BrokerError, ClientError, ConfigError, ConnectFailed, RequestTimeout
from tianzhou.records.codec import encode_record
from tianzhou.wire.bodies.heartbeat import HEARTBEAT
from tianzhou.wire.command import Command
from tianzhou.wire.fields import read_header, write_header, write_reply
from tianzhou.wire.properties import decode_properties
from waiting import until_async

pytestmark = pytest.mark.runner.with_args(within(60))

OFFSET_ID = "7F00000100002A9F00000000000004D2"


def stored(status: int = 0, transaction_id: str | None = "TX"):
    def answer(command: Command) -> Command:
        header = read_header(command)
        fields = write_reply(
            310, msg_id=OFFSET_ID, queue_id=header.queue_id, queue_offset=77, transaction_id=transaction_id
        )
        return command.reply(status, fields=fields)

    return answer


def producer_of(cluster, **options) -> TransactionProducer:
    return TransactionProducer("P", cluster.address, **{"check": lambda message: None} | options)


# --- batches that are split ---------------------------------------------------------------------------------------


async def test_a_split_batch_that_fails_on_its_way_has_the_results_of_those_before(cluster, broker) -> None:
    answers = iter([0, 0, 13])

    def answer(command: Command) -> Command:
        code = next(answers)
        return stored()(command) if code == 0 else command.reply(code, "too large")

    broker.answers[320] = answer
    async with Producer("P", cluster.address) as producer:
        with pytest.raises(
            BatchPartlySent, match=r"batch 3 of 4 to topic T failed, and the 2 messages.*too large"
        ) as one:
            await producer.send_batch([Message("T", b"x" * 600)] * 4, split=True, max_bytes=1_000)
        assert [result.queue_offset for result in one.value.results] == [77, 77]
        assert isinstance(one.value.__cause__, BrokerError)
        broker.answers[320] = lambda command: command.reply(13, "too large")
        with pytest.raises(BrokerError, match="too large"):
            await producer.send_batch([Message("T", b"x")], split=True)


# --- sends that are cancelled ----------------------------------------------------------------------------------------


async def test_a_cancelled_send_awaits_nothing_any_more_and_its_late_answer_harms_nobody(cluster, broker) -> None:
    go_on = asyncio.Event()

    async def later(command: Command) -> Command:
        await go_on.wait()
        return stored()(command)

    broker.answers[310] = later
    async with ClientInstance(cluster.address) as instance, Producer("P", instance=instance) as producer:
        sends = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(3)]
        await until_async(lambda: len(broker.asked(310)) == 3, "all were sent")
        sends[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await sends[1]
        await until_async(lambda: instance.remoting.group.in_flight == 2, "nobody awaits the reply of the second")
        go_on.set()
        for sent in (sends[0], sends[2]):
            assert (await sent).status is SendStatus.SEND_OK
        assert (await producer.send(Message("T", b"y"))).queue_offset == 77
        await until_async(lambda: instance.remoting.group.in_flight == 0, "nobody awaits any reply")
    assert len(broker.asked(310)) == 4


# --- ends of transactions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction_id", ["TX", None])
async def test_the_end_of_a_transaction_says_what_javas_does(transaction_id) -> None:
    def fails(message, arg):
        raise ValueError("no")

    async with one_broker() as (cluster, broker):
        broker.answers[310] = stored(transaction_id=transaction_id)
        broker.answers[37] = lambda command: None
        async with producer_of(cluster) as producer:
            half = await producer.send_in_transaction(
                Message("T", b"x", delay_level=3, properties={"p": "v"}), lambda message, arg: TransactionState.COMMIT
            )
            bad = await producer.send_in_transaction(Message("T", b"y"), fails)
            await until_async(lambda: len(broker.asked(37)) == 2, "both ends were sent")
        sent = broker.asked(310)[0]
        assert sent.sys_flag == 4
        properties = decode_properties(sent.properties.encode())
        assert properties == {"p": "v", "TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": half.msg_id}
        end, unknown = broker.asked(37)
        assert (end.topic, end.producer_group, end.bname) == ("T", "P", "broker-0")
        assert (end.tran_state_table_offset, end.commit_log_offset) == (77, 1234)
        assert (end.commit_or_rollback, end.from_transaction_check) == (8, False)
        assert (end.msg_id, end.transaction_id) == (half.msg_id, transaction_id)
        assert (unknown.commit_or_rollback, bad.state) == (0, TransactionState.UNKNOWN)
        commands = [command for command in broker.requests if command.code == 37]
        assert all(command.is_oneway for command in commands)
        assert commands[0].remark is None
        assert commands[1].remark == "executeLocalTransactionBranch exception: ValueError: no"


@pytest.mark.parametrize("status", [10, 11, 12])
async def test_a_half_message_that_is_not_safe_is_rolled_back_without_the_local_transaction(
    cluster, broker, status
) -> None:
    broker.answers[310] = stored(status)
    broker.answers[37] = lambda command: None
    ran = []
    async with producer_of(cluster) as producer:
        result = await producer.send_in_transaction(Message("T", b"x"), lambda message, arg: ran.append(message))
        await until_async(lambda: broker.asked(37), "the end was sent")
    assert result.state is TransactionState.ROLLBACK
    assert result.result.status is SendStatus(status)
    assert broker.asked(37)[0].commit_or_rollback == 12
    assert ran == []


async def test_a_half_message_that_was_refused_ends_it(cluster, broker) -> None:
    broker.answers[310] = lambda command: command.reply(13, "too large")
    async with producer_of(cluster) as producer:
        with pytest.raises(BrokerError, match="too large"):
            await producer.send_in_transaction(Message("T", b"x"), lambda message, arg: TransactionState.COMMIT)
        with pytest.raises(ClientError):
            await producer.send_in_transaction(Message("T", b""), lambda message, arg: TransactionState.COMMIT)
    assert broker.asked(37) == []


def question(topic: str = "T", group: str = "P", key: str = "U") -> Command:
    properties = f"UNIQ_KEY\x01{key}\x02PGROUP\x01{group}\x02TRAN_MSG\x01true\x02REAL_TOPIC\x01{topic}\x02"
    fields = write_header(
        39,
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        tran_state_table_offset=5,
        commit_log_offset=999,
        msg_id=key,
        transaction_id=key,
        offset_msg_id=OFFSET_ID,
        bname="broker-0",
    )
    return Command(39, fields=fields, body=encode_record(record(topic, 5, b"half", properties)))


async def connected(cluster, producer):
    """Return the producer's connection on the broker's side."""
    (broker,) = cluster.brokers
    await producer.send(Message("T", b"x"))
    await until_async(lambda: broker.asked(34), "it is announced")
    return broker.connections[-1]


async def test_an_answer_to_a_check_says_what_javas_does(cluster, broker) -> None:
    broker.answers[37] = lambda command: None
    seen = []

    async def state(message):
        seen.append((message.topic, message.body, message.transaction_id, message.broker_name))
        if message.msg_id == "U2":
            raise OSError("no database")
        if message.msg_id == "U3":
            return "COMMIT"
        return TransactionState.ROLLBACK

    async with producer_of(cluster, check=state) as producer:
        connection = await connected(cluster, producer)
        for key in ("U1", "U2", "U3"):
            connection.invoke_oneway(question(key=key))
        connection.invoke_oneway(question(group="somebody else", key="U4"))
        await until_async(lambda: len(broker.asked(37)) == 3, "three answers")
    assert seen == [("T", b"half", key, "broker-0") for key in ("U1", "U2", "U3")]
    first, second, third = broker.asked(37)
    assert (first.topic, first.producer_group, first.bname) == ("T", "P", "broker-0")
    assert (first.tran_state_table_offset, first.commit_log_offset) == (5, 999)
    assert (first.commit_or_rollback, first.from_transaction_check) == (12, True)
    assert (first.msg_id, first.transaction_id) == ("U1", "U1")
    assert (second.commit_or_rollback, third.commit_or_rollback) == (0, 0)
    remarks = [command.remark for command in broker.requests if command.code == 37]
    assert remarks[0] is None
    assert remarks[1] == "checkLocalTransactionState Exception: OSError: no database"
    assert "returned 'COMMIT'" in remarks[2]


@pytest.mark.parametrize("asks_in", ["thread", "loop"])
@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("mine")], ids=["exit", "cancelled"])
async def test_a_check_that_exits_leaves_the_state_unknown_and_the_next_one_is_answered(
    cluster, broker, error, asks_in
):
    broker.answers[37] = lambda command: None

    def state(message):
        if message.msg_id == "U1":
            raise error
        return TransactionState.COMMIT

    async def state_async(message):
        return state(message)

    async with producer_of(cluster, check=state if asks_in == "thread" else state_async) as producer:
        connection = await connected(cluster, producer)
        for key in ("U1", "U2"):
            connection.invoke_oneway(question(key=key))
        await until_async(lambda: len(broker.asked(37)) == 2, "two answers")
    assert [answer.commit_or_rollback for answer in broker.asked(37)] == [0, 8]
    remarks = [command.remark for command in broker.requests if command.code == 37]
    assert type(error).__name__ in remarks[0]


async def test_checks_run_side_by_side_within_limits_and_too_many_are_dropped() -> None:
    async with one_broker() as (cluster, broker):
        broker.answers[37] = lambda command: None
        gate = asyncio.Event()
        running = most = 0

        async def state(message):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
            return TransactionState.COMMIT

        async with producer_of(cluster, check=state, check_concurrency=3, check_request_hold_max=4) as producer:
            connection = await connected(cluster, producer)
            for i in range(3):
                connection.invoke_oneway(question(key=f"U{i}"))
            await until_async(lambda: running == 3, "three run")
            for i in range(3, 20):
                connection.invoke_oneway(question(key=f"U{i}"))
            await asyncio.sleep(0.1)
            gate.set()
            await until_async(lambda: len(broker.asked(37)) == 7, "those that were held are answered")
            await asyncio.sleep(0.05)
            assert len(broker.asked(37)) == 7
        assert most == 3
    with pytest.raises(ConfigError, match="at least 1"):
        TransactionProducer("P", "127.0.0.1:1", check=lambda message: None, check_concurrency=0)


# --- names, addresses, modes -----------------------------------------------------------------------------------------


async def test_unit_mode_and_the_second_kind_of_namespace_are_on_the_wire(cluster, broker) -> None:
    options = {"unit_mode": True, "unit_name": "u1", "namespace_v2": "space"}
    consumer, _ = noting(cluster, **options)
    async with Producer("P", cluster.address, **options) as producer, consumer:
        await producer.send(Message("T", b"x"))
        await until_async(lambda: broker.asked(11), "it pulls")
        assert producer.instance.client_id.endswith("@u1")
    (sent,) = broker.asked(310)
    assert (sent.topic, sent.unit_mode, sent.ns, sent.nsd) == ("T", True, "space", True)
    for code in (34, 11, 38):
        assert {(header.ns, header.nsd) for header in broker.asked(code)} == {("space", True)}
    heartbeats = [HEARTBEAT.loads(data) for data in broker.bodies_of(34)]
    assert all(data.unit_mode for heartbeat in heartbeats for data in heartbeat.consumers)


async def test_the_vip_channel_is_for_sends_and_questions_not_for_pulls() -> None:
    async def body(cluster) -> None:
        (broker,) = cluster.brokers
        port = broker.server.port - 2
        fast = f"127.0.0.1:{port}"
        with socket.socket() as ours:
            # Bound but not listening, so that no other process can listen there.
            try:
                ours.bind(("127.0.0.1", port))
            except OSError:
                raise _PortTaken from None
            instance = ClientInstance(cluster.address, vip_channel_enabled=True, connect_timeout_ms=200)
            async with instance, Producer("P", instance=instance, retry_times_when_send_failed=0) as producer:
                with pytest.raises(ConnectFailed, match=fast):
                    await producer.send(Message("T", b"x"))
                with pytest.raises(ConnectFailed, match=fast):
                    await producer.send_oneway(Message("T", b"x"))
                assert await instance.master("broker-0", "T") == fast
                (queue,) = await producer.queues("T")
                assert await instance.reader(queue) == broker.address

    for _ in range(20):
        try:
            async with ScriptedCluster() as cluster:
                await body(cluster)
        except _PortTaken:
            continue
        return
    pytest.fail("20 brokers in a row had another process two ports below")


class _PortTaken(Exception):
    """Another process listens on the port two below the broker's."""


async def test_name_servers_can_be_looked_up() -> None:
    async with ScriptedCluster() as cluster:
        asked = []

        class Lookup(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                answer = b"" if "empty" in self.path else f"{cluster.address}\r\nrest".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *args: object) -> None:
                """Log nothing."""

        server = http.server.HTTPServer(("127.0.0.1", 0), Lookup)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        domain = f"127.0.0.1:{server.server_port}"
        try:
            async with Producer("P", namesrv_domain=domain, unit_name="u") as producer:
                await producer.send(Message("T", b"x"))
            assert asked == ["/rocketmq/nsaddr-u?nofix=1"]
            with pytest.raises(ConnectFailed, match="names no name server"):
                await Producer("P", namesrv_domain=domain, namesrv_domain_subgroup="empty").start()
        finally:
            await asyncio.to_thread(server.shutdown)
            thread.join()
            server.server_close()
        with pytest.raises(ConnectFailed, match="does not answer"):
            await Producer("P", namesrv_domain=domain).start()
    assert lookup_url("jmenv.example") == "http://jmenv.example:8080/rocketmq/nsaddr"


async def test_a_broker_that_did_not_answer_is_avoided_until_it_does() -> None:
    async with ScriptedCluster(brokers=2) as cluster:
        slow, fine = cluster.brokers
        slow.answers[310] = slow.answers[30] = lambda command: asyncio.sleep(60)
        options = {"send_latency_fault_enable": True, "start_detector_enable": True, "detect_interval_ms": 0}
        async with Producer("P", cluster.address, send_msg_max_timeout_per_request_ms=200, **options) as producer:
            for _ in range(6):
                await producer.send(Message("T", b"x"))
            assert len(slow.asked(310)) == 1
            assert len(fine.asked(310)) == 6
            await ClientProbe(producer).look_for_brokers()
            assert not ClientProbe(producer).is_reachable("broker-0")
            del slow.answers[30], slow.answers[310]
            await ClientProbe(producer).look_for_brokers()
            assert ClientProbe(producer).is_reachable("broker-0")


async def test_hooks_see_failures_and_backpressure_ends_in_time(cluster, broker) -> None:
    broker.answers[310] = lambda command: asyncio.sleep(60)
    seen = []
    async with Producer(
        "P",
        cluster.address,
        retry_times_when_send_failed=0,
        enable_backpressure_for_async_mode=True,
        back_pressure_for_async_send_num=10,
        send_hooks=[lambda context: lambda after: seen.append(type(after.error).__name__)],
    ) as producer:
        results = await asyncio.gather(
            *(producer.send(Message("T", b"x"), timeout_ms=300) for _ in range(12)), return_exceptions=True
        )
    assert sorted(type(result).__name__ for result in results) == ["RequestTimeout"] * 10 + ["TooManyRequests"] * 2
    assert seen == [RequestTimeout.__name__] * 10


# --- the choice of queues, and behaviour of 4.x ------------------------------------------------------------------


async def test_by_latency_messages_go_to_the_broker_that_answers_fastest() -> None:
    async with ScriptedCluster(2, queues=2) as cluster:
        slow, fast = cluster.brokers

        async def late(command: Command) -> Command:
            await asyncio.sleep(0.2)
            return slow._on_310(command)

        slow.answers[310] = late
        async with Producer("P", cluster.address, queue_selector="latency") as producer:
            for number in range(20):
                await producer.send(Message("T", b"%d" % number))
            assert (len(slow.asked(310)), len(fast.asked(310))) == (1, 19)
            assert {header.queue_id for header in fast.asked(310)} == {0, 1}
            await producer.send_oneway(Message("T", b"one way"))
            await until_async(lambda: len(fast.asked(310)) == 20, "the one-way message")
            # A queue, a selector or a sharding key still decides.
            await producer.send(Message("T", b"x"), selector=lambda queues, message, arg: queues[0])
            assert len(slow.asked(310)) == 2


async def test_by_latency_a_broker_that_refuses_at_once_is_not_the_fastest() -> None:
    async with ScriptedCluster(2) as cluster:
        refusing, other = cluster.brokers
        refusing.answers[310] = lambda command: command.reply(2, "busy")
        async with Producer("P", cluster.address, queue_selector="latency") as producer:
            for number in range(10):
                assert (await producer.send(Message("T", b"%d" % number))).status is SendStatus.SEND_OK
        assert (len(refusing.asked(310)), len(other.asked(310))) == (1, 10)


async def test_by_the_codes_of_4x_a_busy_broker_is_not_followed_by_another() -> None:
    async with ScriptedCluster(2) as cluster:
        for broker in cluster.brokers:
            broker.answers[310] = lambda command: command.reply(2, "busy")
        for options, attempts in ({}, 3), ({"retry_response_codes": RETRY_CODES_4X}, 1):
            for broker in cluster.brokers:
                broker.requests.clear()
            async with Producer("P", cluster.address, **options) as producer:
                with pytest.raises(BrokerError, match="busy"):
                    await producer.send(Message("T", b"x"))
            assert sum(len(broker.asked(310)) for broker in cluster.brokers) == attempts


async def test_by_the_pauses_of_4x_a_slow_broker_is_avoided_for_half_a_minute() -> None:
    for version, pause_s in ("5.x", 2), ("4.x", 30):
        async with ScriptedCluster(2) as cluster:
            slow = cluster.brokers[0]

            async def late(command: Command, slow: ScriptedBroker = slow) -> Command:
                await asyncio.sleep(0.6)
                return slow._on_310(command)

            slow.answers[310] = late
            options = {"send_latency_fault_enable": True, "latency_pauses": version}
            async with Producer("P", cluster.address, **options) as producer:
                while not slow.asked(310):
                    await producer.send(Message("T", b"x"))
                await asyncio.sleep(pause_s - 1)
                for _ in range(4):
                    await producer.send(Message("T", b"x"))
                assert len(slow.asked(310)) == 1
                await asyncio.sleep(2)
                for _ in range(2):
                    await producer.send(Message("T", b"x"))
                assert len(slow.asked(310)) == 2


@pytest.mark.parametrize(
    ("option", "words"), [("queue_selector", "round-robin, latency"), ("latency_pauses", "5.x, 4.x")]
)
def test_a_word_that_an_option_does_not_have_is_refused(option: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is 'fastest'; use one of {words}"):
        Producer("P", "127.0.0.1:9", **{option: "fastest"})
