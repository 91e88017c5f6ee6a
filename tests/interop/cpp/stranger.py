"""The C++ client, through its Python wheel, as a command: one JSON object per line on standard output.

It runs in a virtual environment of its own and imports no code of ours. There is no batch mode: the library sends a
batch without marking it as one, so that any broker stores it as a single opaque message.

    produce NAMESRV TOPIC GROUP FIRST MODE:COUNT...   modes: sync, oneway
    consume NAMESRV ROLE:GROUP:TOPIC[,TOPIC]...       role: clustering; until end of input
    send NAMESRV TOPIC GROUP WAY COUNT PARAMETER      ways: delay (its level), ordered (number of keys), async, plain
    take NAMESRV ROLE GROUP TOPIC MEMBERS             roles: plain, orderly, broadcasting, again, dead
    read NAMESRV GROUP TOPIC                          pulls all messages

Environment variables: STRANGER_TAGS has the subscription, STRANGER_ACCESS_KEY and STRANGER_SECRET_KEY the account,
STRANGER_ROUTE_S the seconds to wait for a topic's route.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.ffi import MessageModel, dll

MAX_LIFETIME = 480
ROUTE_TIMEOUT = float(os.environ.get("STRANGER_ROUTE_S", "30"))
_output = threading.Lock()


def emit(**fields: Any) -> None:
    """Write one line."""
    text = (json.dumps(fields, ensure_ascii=False) + "\n").encode()
    with _output:
        os.write(1, text)


def body(i: int) -> bytes:
    """Return the body of message i; no byte is zero, the client's API ends bodies there."""
    length = 4096 + i % 2048 if i % 10 == 9 else 16 + i % 241
    return bytes(1 + (i * 131 + j * 17 + j // 251) % 255 for j in range(length))


def message(topic: str, i: int) -> Message:
    """Return message i of a topic."""
    made = Message(topic)
    made.set_tags(f"tag{i % 4}")
    made.set_keys(f"key-{i} group-{i // 50}")
    made.set_body(body(i))
    made.set_property("index", str(i))
    made.set_property("note", f"note 天舟 {i}")
    return made


def sign(client: Any) -> None:
    """Set a client's credentials from the environment."""
    if "STRANGER_ACCESS_KEY" in os.environ:
        client.set_session_credentials(os.environ["STRANGER_ACCESS_KEY"], os.environ["STRANGER_SECRET_KEY"], "ALIYUN")


def produce(namesrv: str, topic: str, group: str, first: str, *modes: str) -> None:
    """Send messages first, first + 1, …"""
    producer = Producer(group, timeout=10_000)
    producer.set_namesrv_addr(namesrv)
    sign(producer)
    producer.start()
    i = int(first)
    for part in modes:
        mode, _, count = part.partition(":")
        end = i + int(count)
        while i < end:
            if mode == "sync":
                result = patiently(lambda i=i: producer.send_sync(message(topic, i)))
                sent(mode, i, result.msg_id, result.offset, result.status)
                i += 1
            elif mode == "oneway":
                producer.send_oneway(message(topic, i))
                emit(event="sent", mode=mode, i=i)
                i += 1
            else:
                raise ValueError(mode)
    threading.Event().wait(0.5)
    emit(event="stopping")
    producer.shutdown()
    emit(event="done", failed=0)


def patiently(send: Callable[[], Any]) -> Any:
    """Return the result of a send; repeat it while the client has no route after three seconds, because no message was
    sent yet.
    """
    deadline = time.monotonic() + ROUTE_TIMEOUT
    while True:
        try:
            return send()
        except Exception as error:
            if "No route info" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def sent(mode: str, i: int, message_id: str, queue_offset: int, code: int) -> None:
    """Write the line of one acknowledged message."""
    emit(event="sent", mode=mode, i=i, msgId=message_id, queueOffset=queue_offset, status=status(code))


def status(code: int) -> str:
    """Return the status under the name that the other clients use."""
    return "SEND_OK" if code == 0 else f"status {int(code)}"


def consume(namesrv: str, *specs: str) -> None:
    """Consume until the end of input."""
    consumers = []
    for n, spec in enumerate(specs):
        role, group, topics = spec.split(":")
        consumer = PushConsumer(group)
        consumer.set_namesrv_addr(namesrv)
        sign(consumer)
        consumer.set_instance_name(f"{role}-{n}")
        consumer.set_thread_count(2)
        first, *others = topics.split(",")
        for topic in others:
            dll.Subscribe(consumer._handle, topic.encode(), b"*")
        consumer.subscribe(first, lambda got, name=f"{role}-{n}": received(name, got))
        consumer.start()
        consumers.append(consumer)
    emit(event="started")
    sys.stdin.buffer.read()
    emit(event="stopping")
    for consumer in consumers:
        consumer.shutdown()
    emit(event="done")


def text(value: bytes | None) -> str | None:
    """Return a property as text."""
    return None if value is None else value.decode()


def received(name: str, got: RecvMessage) -> None:
    """Write the line of one received message."""
    content = got.body
    index = text(got.get_property("index"))
    emit(
        event="received",
        consumer=name,
        topic=got.topic,
        i=int(index) if index else -1,
        msgId=got.id,
        uniqueKey=text(got.get_property("UNIQ_KEY")),
        queueId=got.queue_id,
        queueOffset=got.queue_offset,
        bodyLength=len(content),
        bodySha256=hashlib.sha256(content).hexdigest(),
        tags=text(got.tags),
        keys=text(got.keys),
        property=text(got.get_property("note")),
        reconsumeTimes=got.reconsume_times,
        bornTimestamp=got.born_timestamp,
        storeTimestamp=got.store_timestamp,
        failed=False,
    )


def send(namesrv: str, topic: str, group: str, way: str, count: str, parameter: str) -> None:
    """Send in one of the ways."""
    producer = Producer(group, timeout=10_000)
    producer.set_namesrv_addr(namesrv)
    sign(producer)
    producer.start()
    answered = threading.Semaphore(0)
    for i in range(int(count)):
        made = Message(topic)
        made.set_body(b"body %d" % i)
        made.set_tags(f"tag{i % 4}")
        made.set_keys(f"key-{i}")
        made.set_property("index", str(i))
        if way == "async":

            def done(result: Any, i: int = i) -> None:
                sent(way, i, result.msg_id, result.offset, result.status)
                answered.release()

            producer.send_async(made, done, lambda error: emit(event="failed", error=repr(error)))
            if not answered.acquire(timeout=20):
                raise TimeoutError(f"no answer to message {i}")
            continue
        if way == "delay":
            made.set_delay_time_level(int(parameter))
        in_order = way == "ordered"
        key = i % int(parameter) if in_order else 0
        result = patiently(
            lambda made=made, key=key, in_order=in_order: (
                producer.send_orderly(made, key) if in_order else producer.send_sync(made)
            )
        )
        sent(way, i, result.msg_id, result.offset, result.status)
    emit(event="stopping")
    producer.shutdown()
    emit(event="done", failed=0)


def take(namesrv: str, role: str, group: str, topic: str, members: str) -> None:
    """Consume in one of the roles until the end of input."""
    consumers = []
    model = MessageModel.BROADCASTING if role == "broadcasting" else MessageModel.CLUSTERING
    for n in range(int(members)):
        consumer = PushConsumer(group, orderly=role == "orderly", message_model=model)
        consumer.set_namesrv_addr(namesrv)
        sign(consumer)
        consumer.set_instance_name(f"{role}-{n}-{group}")
        consumer.set_thread_count(4)
        dll.Subscribe(consumer._handle, topic.encode(), os.environ.get("STRANGER_TAGS", "*").encode())
        consumer._register_callback(handler(f"{role}-{n}", role))
        consumer.start()
        consumers.append(consumer)
    emit(event="started")
    sys.stdin.buffer.read()
    emit(event="stopping")
    for consumer in consumers:
        consumer.shutdown()
    emit(event="done")


def handler(name: str, role: str) -> Any:
    """Return a handler.

    The role orderly refuses messages with 7 modulo 50 once, the role again those with 7 modulo 10 once; the role dead
    always refuses message 5.
    """
    seen: set[int] = set()

    def handle(_: Any, pointer: Any) -> int:
        got = RecvMessage(pointer)
        index = text(got.get_property("index"))
        i = int(index) if index else -1
        fail = role == "dead" and i == 5
        fail |= role == "again" and i % 10 == 7 and got.reconsume_times == 0
        if role == "orderly" and i % 50 == 7 and i not in seen:
            seen.add(i)
            fail = True
        taken(name, got, i, fail)
        return 1 if fail else 0

    return handle


def taken(name: str, got: RecvMessage, i: int, fail: bool) -> None:
    """Write the short line of one received message."""
    emit(
        event="received",
        consumer=name,
        i=i,
        topic=got.topic,
        tags=text(got.tags),
        queueId=got.queue_id,
        queueOffset=got.queue_offset,
        reconsumeTimes=got.reconsume_times,
        together=1,
        bornTimestamp=got.born_timestamp,
        storeTimestamp=got.store_timestamp,
        at=time.time() * 1000,
        failed=fail,
    )


def read(namesrv: str, group: str, topic: str) -> None:
    """Pull all messages of a topic."""
    consumer = PullConsumer(group)
    consumer.set_namesrv_addr(namesrv)
    sign(consumer)
    consumer.start()
    for got in consumer.pull(topic):
        taken("pull", got, int(text(got.get_property("index")) or -1), False)
    emit(event="stopping")
    consumer.shutdown()
    emit(event="done")


def give_up() -> None:
    """End the process when it runs too long."""
    emit(event="timeout")
    os._exit(3)


if __name__ == "__main__":
    watchdog = threading.Timer(MAX_LIFETIME, give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        commands = {"produce": produce, "consume": consume, "send": send, "take": take, "read": read}
        commands[sys.argv[1]](*sys.argv[2:])
    except Exception as error:  # noqa: BLE001 — it is reported, and ends the process
        emit(event="error", error=repr(error))
        os._exit(1)
    os._exit(0)  # the library's destructors may hang or crash
