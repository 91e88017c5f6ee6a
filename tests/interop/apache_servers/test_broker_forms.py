"""Sends, pulls, commits and look-ups in every form that a client may use: our response codes equal those of Apache's
broker.

Apache's codes are recorded (`recorded.py`). `./test --slow` compares them with the codes of a running Apache broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import frames
import pytest
from both import broker_of, make_group, make_topic
from frames import Reply
from questions import Asker
from recorded import is_as_recorded, plain, recorded
from toolchain import SERVERS

from tianzhou.wire.batch import encode_batch
from waiting import until

SEND, SEND_V2, SEND_BATCH, PULL = 10, 310, 320, 11
TOPIC = "forms_topic"
Form = dict[str, object]

SENDS: dict[str, Form] = {
    "plain": {},
    "any queue": {"topic": "forms_any", "queueId": -1},
    "any queue, oddly": {"topic": "forms_any_odd", "queueId": -7},
    "the last queue": {"queueId": 3},
    "a queue beyond": {"queueId": 4},
    "a read queue": {"topic": "forms_reads", "queueId": 3},
    "no topic": {"topic": ""},
    "a blank topic": {"topic": " "},
    "a bad topic": {"topic": "no topic!"},
    "a long topic": {"topic": "t" * 127},
    "too long a topic": {"topic": "t" * 128},
    "the half topic": {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
    "the schedule topic": {"topic": "SCHEDULE_TOPIC_XXXX"},
    "the trace topic": {"topic": "RMQ_SYS_TRACE_TOPIC"},
    "the template": {"topic": "TBW102"},
    "the benchmark topic": {"topic": "BenchmarkTest"},
    "the self test": {"topic": "SELF_TEST_TOPIC"},
    "the moved event": {"topic": "OFFSET_MOVED_EVENT"},
    "the cluster's topic": {"topic": "DefaultCluster"},
    "the broker's topic": {"topic": "broker-a"},
    "a new topic": {"topic": "forms_new"},
    "a new topic of many queues": {"topic": "forms_many", "defaultTopicQueueNums": 100},
    "a new topic of no queue": {"topic": "forms_zero", "defaultTopicQueueNums": 0},
    "a new topic of fewer than none": {"topic": "forms_minus", "defaultTopicQueueNums": -3},
    "a new topic, no template": {"topic": "forms_lost", "defaultTopic": "forms_nowhere"},
    "a new topic from one that is not inherited": {"topic": "forms_lost", "defaultTopic": TOPIC},
    "a new topic in unit mode": {"topic": "forms_unit", "unitMode": "true"},
    "a topic only read": {"topic": "forms_read_only"},
    "a topic only written": {"topic": "forms_write_only"},
    "a new retry topic": {"topic": "%RETRY%forms_group", "reconsumeTimes": 1},
    "a retry too many": {"topic": "%RETRY%forms_group", "reconsumeTimes": 17},
    "the last retry": {"topic": "%RETRY%forms_group", "reconsumeTimes": 16},
    "a retry limit": {"topic": "%RETRY%forms_group", "reconsumeTimes": 2, "maxReconsumeTimes": 1},
    "a dead letter": {"topic": "%DLQ%forms_group"},
    "a delay": {"properties": "DELAY\x011\x02"},
    "a delay below": {"properties": "DELAY\x01-1\x02"},
    "a delay beyond": {"properties": "DELAY\x0199\x02"},
    "a delay that is none": {"properties": "DELAY\x01soon\x02"},
    "no properties": {"properties": ""},
    "odd properties": {"properties": "a\x01\x02\x02x\x02k\x01v"},
    "compressed, it says": {"sysFlag": 1},
    "an inner batch, it says": {"sysFlag": 0x40},
    "no sysFlag": {"sysFlag": None},
    "no queue": {"queueId": None},
    "a queue that is no number": {"queueId": "two"},
    "no born time": {"bornTimestamp": None},
    "no group": {"producerGroup": None},
    "an order topic": {"topic": "forms_order"},
}
TWO = encode_batch([(0, b"one", b"UNIQ_KEY\x01A\x02TAGS\x01t\x02"), (7, b"two", b"UNIQ_KEY\x01B\x02")])
BATCHES: dict[str, tuple[Form, bytes]] = {
    "plain": ({}, TWO),
    "of one": ({}, encode_batch([(0, b"one", b"")])),
    "with a key of its own": ({"properties": "UNIQ_KEY\x01K\x02WAIT\x01false\x02"}, TWO),
    "without properties": ({"properties": None}, TWO),
    "to any queue": ({"topic": "forms_any_batch", "queueId": -1}, TWO),
    "to a queue beyond": ({"queueId": 4}, TWO),
    "to a new topic": ({"topic": "forms_batched"}, TWO),
    "to a retry topic": ({"topic": "%RETRY%forms_group"}, TWO),
    "to a long topic": ({"topic": "b" * 127}, TWO),
    "to too long a topic": ({"topic": "b" * 128}, TWO),
    "to the half topic": ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, TWO),
    "cut short": ({}, TWO[:-3]),
    "with a rest": ({}, TWO + b"xyz"),
    "of bytes": ({}, b"\xff" * 64),
    "compressed, it says": ({"sysFlag": 1}, TWO),
}
PULLS: dict[str, Form] = {
    "plain": {},
    "from the end": {"queueOffset": 3},
    "beyond the end": {"queueOffset": 4},
    "far beyond": {"queueOffset": 1 << 40},
    "before the beginning": {"queueOffset": -1},
    "an empty queue": {"queueId": 1},
    "an empty queue, from 1": {"queueId": 1, "queueOffset": 1},
    "a queue beyond": {"queueId": 4},
    "a negative queue": {"queueId": -1},
    "a write queue": {"topic": "forms_writes", "queueId": 3},
    "no messages": {"maxMsgNums": 0},
    "fewer than none": {"maxMsgNums": -1},
    "one": {"maxMsgNums": 1},
    "an unknown topic": {"topic": "forms_nowhere"},
    "an unknown group": {"consumerGroup": "forms_unknown"},
    "a bad group": {"consumerGroup": "no group!"},
    "a group that may not consume": {"consumerGroup": "forms_off"},
    "a topic only read": {"topic": "forms_read_only"},
    "a topic only written": {"topic": "forms_write_only"},
    "no tag": {"subscription": "||"},
    "a tag": {"subscription": "t"},
    "another tag": {"subscription": "x"},
    "no expression": {"subscription": ""},
    "nobody online": {"sysFlag": 0},
    "a commit with nobody online": {"sysFlag": 1},
    "a commit": {"sysFlag": 5, "commitOffset": 2, "consumerGroup": "forms_commits"},
    "a wait": {"sysFlag": 6, "suspendTimeoutMillis": 300, "queueOffset": 3},
    "a wait of no time": {"sysFlag": 6, "suspendTimeoutMillis": 0, "queueOffset": 3},
    "a wait beyond the end": {"sysFlag": 6, "suspendTimeoutMillis": 300, "queueOffset": 9},
    "the schedule topic": {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": 2},
    "no queue": {"queueId": None},
    "no group": {"consumerGroup": None},
    "no topic": {"topic": None},
}
OTHERS: dict[str, tuple[int, Form]] = {
    "a commit": (15, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0, "commitOffset": 2}),
    "the commit": (14, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0}),
    "a commit back": (15, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0, "commitOffset": 1}),
    "the commit now": (14, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0}),
    "a commit of nobody": (15, {"consumerGroup": "forms_nobody", "topic": TOPIC, "queueId": 0, "commitOffset": 2}),
    "a commit nowhere": (15, {"consumerGroup": "forms_group", "topic": "nowhere", "queueId": 0, "commitOffset": 2}),
    "a commit without queue": (15, {"consumerGroup": "forms_group", "topic": TOPIC, "commitOffset": 2}),
    "a commit without offset": (15, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0}),
    "a commit beyond": (15, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 9, "commitOffset": 7}),
    "that commit": (14, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 9}),
    "by a pull": (14, {"consumerGroup": "forms_commits", "topic": TOPIC, "queueId": 0}),
    "none yet": (14, {"consumerGroup": "forms_new", "topic": TOPIC, "queueId": 0}),
    "none yet, no zero": (
        14, {"consumerGroup": "forms_new", "topic": TOPIC, "queueId": 0, "setZeroIfNotFound": "false"},
    ),
    "none yet nowhere": (14, {"consumerGroup": "forms_new", "topic": "nowhere", "queueId": 0}),
    "none yet without queue": (14, {"consumerGroup": "forms_new", "topic": TOPIC}),
    "the end": (30, {"topic": TOPIC, "queueId": 0}),
    "the end, not committed": (30, {"topic": TOPIC, "queueId": 0, "committed": "false"}),
    "the end of nothing": (30, {"topic": "nowhere", "queueId": 0}),
    "the end of no queue": (30, {"topic": TOPIC}),
    "the beginning": (31, {"topic": TOPIC, "queueId": 0}),
    "the beginning of nothing": (31, {"topic": "nowhere", "queueId": 7}),
    "long ago": (29, {"topic": TOPIC, "queueId": 0, "timestamp": 1}),
    "long ago, above": (29, {"topic": TOPIC, "queueId": 0, "timestamp": 1, "boundaryType": "UPPER"}),
    "in future": (29, {"topic": TOPIC, "queueId": 0, "timestamp": 1 << 45}),
    "in future, above": (29, {"topic": TOPIC, "queueId": 0, "timestamp": 1 << 45, "boundaryType": "UPPER"}),
    "at no time": (29, {"topic": TOPIC, "queueId": 0}),
    "of another kind": (29, {"topic": TOPIC, "queueId": 0, "timestamp": 1, "boundaryType": "MIDDLE"}),
    "when nowhere": (29, {"topic": "nowhere", "queueId": 0, "timestamp": 1}),
    "the first time nowhere": (32, {"topic": "nowhere", "queueId": 0}),
    "a view of nothing": (33, {"offset": 1 << 40}),
    "a view before": (33, {"offset": -1}),
    "a query": (12, {"topic": TOPIC, "key": "none", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 1 << 45}),
    "a query of no topic": (12, {"key": "none", "maxNum": 8, "beginTimestamp": 0, "endTimestamp": 1 << 45}),
    "members of nobody": (38, {"consumerGroup": "forms_nobody"}),
    "members of no group": (38, {}),
    "connections of nobody": (203, {"consumerGroup": "forms_nobody"}),
    "producers of nobody": (204, {"producerGroup": "forms_nobody"}),
    "a reset of nobody": (
        222, {"topic": TOPIC, "group": "forms_nobody", "timestamp": 1, "isForce": "true"},
    ),
    "a reset nowhere": (222, {"topic": "nowhere", "group": "forms_group", "timestamp": 1, "isForce": "true"}),
    "a reset": (
        222, {"topic": TOPIC, "group": "forms_group", "timestamp": -1, "isForce": "true", "queueId": 0, "offset": 4},
    ),
    "a reset too far": (
        222, {"topic": TOPIC, "group": "forms_group", "timestamp": -1, "isForce": "true", "queueId": 0, "offset": 5},
    ),
    "a commit after it": (15, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0, "commitOffset": 1}),
    "the commit after it": (14, {"consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0}),
    "a pull after it": (
        11,
        {
            "consumerGroup": "forms_group", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 8,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        },
    ),
    "a topic's consumers": (300, {"topic": "nowhere"}),
    "a topic's figures": (202, {"topic": "nowhere"}),
    "a group's figures": (208, {"consumerGroup": "forms_nobody"}),
    "a deletion of nothing": (215, {"topic": "nowhere"}),
    "a deletion of no topic": (215, {"topic": " "}),
    "a deletion of the half topic": (215, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}),
    "a deletion of no group": (207, {"groupName": "forms_nobody"}),
}  # fmt: skip
TOPICS: dict[str, Form] = {
    "plain": {},
    "again": {},
    "another permission": {"perm": 4},
    "no permission": {"topic": "forms_made_none", "perm": 0},
    "all permissions": {"topic": "forms_made_all", "perm": 7},
    "too many permissions": {"topic": "forms_made_8", "perm": 15},
    "no queues": {"topic": "forms_made_no_queue", "readQueueNums": 0, "writeQueueNums": 0},
    "many queues": {"topic": "forms_made_many", "readQueueNums": 64, "writeQueueNums": 32},
    "many tags": {"topic": "forms_made_tags", "topicFilterType": "MULTI_TAG"},
    "another filter": {"topic": "forms_made_filter", "topicFilterType": "NO_TAG"},
    "no filter": {"topic": "forms_made_filter", "topicFilterType": None},
    "flags": {"topic": "forms_made_flags", "topicSysFlag": 3},
    "order": {"topic": "forms_made_order", "order": "true"},
    "no template": {"topic": "forms_made_lost", "defaultTopic": None},
    "a blank name": {"topic": " "},
    "a bad name": {"topic": "no topic!"},
    "a long name": {"topic": "t" * 126 + "x"},
    "too long a name": {"topic": "t" * 128},
    "a system topic": {"topic": "TBW102"},
    "a system prefix": {"topic": "rmq_sys_x"},
    "the cluster": {"topic": "DefaultCluster"},
    "a retry topic": {"topic": "%RETRY%forms_made"},
    "ordered messages": {"topic": "forms_made_fifo", "attributes": "+message.type=FIFO"},
    "ordered no more": {"topic": "forms_made_fifo", "attributes": "-message.type"},
    "mixed messages": {"topic": "forms_made_mixed", "attributes": "+message.type=MIXED"},
    "messages of no type": {"topic": "forms_made_type", "attributes": "+message.type=NONE"},
    "an unknown attribute": {"topic": "forms_made_what", "attributes": "+what=1"},
    "taken from a new one": {"topic": "forms_made_minus", "attributes": "-message.type"},
    "without a sign": {"topic": "forms_made_sign", "attributes": "message.type=FIFO"},
    "batches": {"topic": "forms_made_batch", "attributes": "+queue.type=BatchCQ"},
    "batches no more": {"topic": "forms_made_batch", "attributes": "+queue.type=SimpleCQ"},
    "kept longer": {"topic": "forms_made_kept", "attributes": "+reserve.time=5"},
    "kept for ever": {"topic": "forms_made_kept", "attributes": "+reserve.time=-1"},
    "kept for no time": {"topic": "forms_made_kept_x", "attributes": "+reserve.time=soon"},
}
GROUPS: dict[str, Form] = {
    "plain": {},
    "no tries": {"retryMaxTimes": 0, "groupName": "forms_tries"},
    "fewer than none": {"retryMaxTimes": -1, "retryQueueNums": -1, "groupName": "forms_minus"},
    "a bad name": {"groupName": "no group!"},
    "a blank name": {"groupName": " "},
    "no name": {"groupName": None},
    "a long name": {"groupName": "g" * 255},
    "too long a name": {"groupName": "g" * 256},
    "built in": {"groupName": "TOOLS_CONSUMER", "retryMaxTimes": 3},
    "in order": {"groupName": "forms_order", "consumeMessageOrderly": True},
}
LOCKS: tuple[tuple[int, str, str, tuple[int, ...]], ...] = (
    (41, "locks", "a", (0, 1)),
    (41, "locks", "b", (1, 2)),
    (41, "locks", "a", (0, 2)),
    (42, "locks", "b", (0, 1, 2)),
    (41, "locks", "a", (2,)),
    (41, "others", "b", (0, 1, 2)),
    (42, "locks", "a", (0, 99)),
    (41, "locks", "b", (0, 1)),
    (42, "nobody", "a", (0,)),
    (41, "locks", "b", ()),
    (41, "locks", "b", (77,)),
)
"""Code, group, client, queues."""

KNOWN = {
    "send: an inner batch, it says": "5.3.3 stores what no consumer can unwrap",
    "send: no group": "a missing field is named; 5.3.3 needs this one for its figures only",
    "none yet nowhere": "a new group starts at 0 as with 4.9.7 (docs/spec/traps.md, 7)",
    "a query of no topic": "a missing field is named",
    "topic: no template": "a missing field is named; 5.3.3 does not need this one here",
    **{
        f"group: {name}": "a name no consumer could use is refused"
        for name in ("a bad name", "a blank name", "no name", "too long a name")
    },
}
"""Forms with an intentionally different reply, and the reasons."""
SHOWN = ("queueId", "queueOffset", "nextBeginOffset", "minOffset", "maxOffset", "offset", "suggestWhichBrokerId")


def shown(reply: Reply, *, queue: bool = True) -> tuple[int, dict[str, str]]:
    """Return the code and the header fields that show the result."""
    names = SHOWN if queue else SHOWN[1:]
    return reply.code, {name: value for name, value in reply.fields.items() if name in names}


def ask(asker: Asker, code: int, form: Form, body: bytes = b"") -> Reply:
    return asker.ask(code, body, **{name: value for name, value in form.items() if value is not None})


def answers(kind: str, folder: Path) -> dict[str, Any]:
    with broker_of(kind, folder) as (namesrv, broker), Asker(broker) as asker:
        for topic in (TOPIC, "forms_read_only", "forms_write_only"):
            frames.create_topic(namesrv, broker, topic, 4)
        for topic, read, write in (("forms_reads", 4, 2), ("forms_writes", 2, 4)):
            make_topic(broker, topic, 6, read, write)
        make_topic(broker, "forms_read_only", 4)
        make_topic(broker, "forms_write_only", 2)
        make_group(broker, "forms_group")
        make_group(broker, "forms_off", consumeEnable=False)
        found: dict[str, Any] = {}
        usual: Form = {
            "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 2,
            "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "UNIQ_KEY\x01U\x02", "reconsumeTimes": 0,
            "unitMode": "false",
        }  # fmt: skip
        for name, form in SENDS.items():
            any_queue = int(str(form.get("queueId") or 0) if str(form.get("queueId")).lstrip("-").isdigit() else 0) < 0
            found[f"send: {name}"] = shown(ask(asker, SEND, usual | form, b"body"), queue=not any_queue)
        for name, (form, body) in BATCHES.items():
            reply = ask(asker, SEND, usual | {"batch": "true", "topic": "forms_batches"} | form, body)
            found[f"batch: {name}"] = (
                shown(reply, queue=form.get("queueId") != -1),
                reply.fields.get("msgId", "").count(","),
            )
        letters = dict(zip("abcdefghijkm", [*usual.values(), "true"], strict=True))
        reply = ask(asker, SEND_BATCH, letters | {"b": "forms_batches"}, TWO)
        found["batch: by its own code"] = shown(reply), reply.fields.get("msgId", "").count(",")
        reply = ask(asker, SEND_V2, letters | {"b": "forms_batches", "m": "false"}, TWO)
        found["send: by the letters"] = shown(reply)
        found["send: no body"] = shown(ask(asker, SEND, usual))
        for topic in (
            "forms_new",
            "forms_many",
            "forms_zero",
            "forms_minus",
            "forms_unit",
            "%DLQ%forms_group",
            "forms_batched",
        ):
            reply = asker.ask(351, topic=topic)
            names = ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag", "order", "topicFilterType")
            found[f"topic {topic}"] = {name: reply.json()[name] for name in names} if reply.code == 0 else reply.code
        for _ in range(3):
            ask(asker, SEND, usual | {"queueId": 0, "properties": "UNIQ_KEY\x01U\x02TAGS\x01t\x02"}, b"body")
        until(lambda: asker.bounds((TOPIC, 0))[1] == 3, "three messages")
        usual = {
            "consumerGroup": "G", "topic": TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 1000, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG",
        }  # fmt: skip
        for name, form in PULLS.items():
            reply = ask(asker, PULL, usual | form)
            found[f"pull: {name}"] = (*shown(reply), reply.remark if reply.code in (0, 19, 20, 21) else "")
        for name, (code, form) in OTHERS.items():
            found[name] = shown(ask(asker, code, form))
        found |= changes(asker)
        return found


def changes(asker: Asker) -> dict[str, Any]:
    """Topics, groups and locks."""
    found: dict[str, Any] = {}
    usual: Form = {
        "topic": "forms_made", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    for name, form in TOPICS.items():
        code = ask(asker, 17, usual | form).code
        made = asker.ask(351, topic=(usual | form)["topic"])
        found[f"topic: {name}"] = code, made.json() if made.code == 0 else made.code
    default = {
        "groupName": "forms_made", "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True,
        "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
    }  # fmt: skip
    for name, form in GROUPS.items():
        body = {key: value for key, value in (default | form).items() if value is not None}
        code = asker.ask(200, json.dumps(body).encode()).code
        made = asker.ask(352, group=body.get("groupName", ""))
        found[f"group: {name}"] = code, made.json() if made.code == 0 else made.code
    for number, (code, group, client, queues) in enumerate(LOCKS):
        wanted = [{"brokerName": "broker-a", "queueId": queue, "topic": TOPIC} for queue in queues]
        said = {"consumerGroup": group, "clientId": client, "mqSet": wanted, "onlyThisBroker": False}
        reply = asker.ask(code, json.dumps(said).encode())
        got = reply.json().get("lockOKMQSet", []) if code == 41 and reply.code == 0 else []
        found[f"lock {number}"] = reply.code, sorted(queue["queueId"] for queue in got)
    return found


NAME = f"broker-forms-{SERVERS[0]}"
QUESTIONS = [repr(one) for one in (SENDS, BATCHES, PULLS, OTHERS, TOPICS, GROUPS, LOCKS)]


def test_every_form_is_answered_with_apaches_code(tmp_path: Path) -> None:
    ours, theirs = plain(answers("tianzhou", tmp_path)), recorded(NAME, QUESTIONS)
    different = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    unexpected = {name: one for name, one in different.items() if name not in KNOWN}
    assert not unexpected, "\n".join(f"{name}: {one}" for name, one in unexpected.items())
    assert different.keys() == KNOWN.keys()


@pytest.mark.slow
def test_apaches_broker_answers_as_recorded(tmp_path: Path) -> None:
    live = answers("apache", tmp_path)
    is_as_recorded(NAME, live, source=f"broker {SERVERS[0]}", questions=QUESTIONS)
