"""Messages that consumers always refuse: the retries and the dead letter equal those of Apache's broker.

The retries of Apache's broker are recorded (`recorded.py`). `./test --slow` runs the same consumers at Apache's broker.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import frames
import pytest
from both import broker_of, make_group, make_topic
from frames import call
from questions import Asker, Queue
from recorded import is_as_recorded, plain, recorded
from strangers import STRANGERS, Program, Stranger
from toolchain import SERVERS

from tianzhou.records.codec import decode_records
from tianzhou.wire.properties import decode_properties
from waiting import until

pytestmark = pytest.mark.at_once

STEPS = 16
RUNTIME_INFO = 28
WITHIN_S = 120


@dataclass(frozen=True)
class Case:
    """One refused message: its consumer, its retry limit, and the group's retry limit."""

    stranger: str
    orderly: bool
    most: int

    @property
    def name(self) -> str:
        """Return the name of its topic and its group."""
        kind = "ordered" if self.orderly else "any"
        return f"refused_{self.stranger}_{kind}_{self.most}".replace(".", "_").replace("_-1", "_default")


CASES = (
    *(Case(name, orderly=False, most=-1) for name in ("java-5.3.3", "java-4.9.7", "go-2.1.2")),
    *(Case(name, orderly=False, most=1) for name in ("java-5.3.3", "java-4.9.7", "go-2.1.2")),
    *(Case(name, orderly=True, most=2) for name in ("java-5.3.3", "java-4.9.7")),
)


def program(case: Case, namesrv: str) -> Program:
    stranger: Stranger = STRANGERS[case.stranger]
    arguments = (namesrv, case.name, case.name, str(case.orderly).lower(), str(case.most))
    if stranger.inspects:
        java = replace(stranger, resolve=lambda home: [*stranger.resolve(home)[:-1], "Refusing"])
        return Program(java, *arguments)
    return Program(stranger, "refusing", *arguments)


def outcomes(kind: str, folder: Path) -> dict[str, Any]:
    """Return the result for one message of each case: number of deliveries, and its dead letter."""
    with broker_of(kind, folder) as (namesrv, broker), ExitStack() as stack:
        programs = {}
        for case in CASES:
            frames.create_topic(namesrv, broker, case.name, 1)
            # The broker would create it when the members start, and they refresh their routes only every half minute.
            frames.create_topic(namesrv, broker, f"%RETRY%{case.name}", 1)
            programs[case.name] = stack.enter_context(program(case, namesrv))
            frames.send(broker, case.name, 0, b"poison", {"UNIQ_KEY": case.name.upper(), "TAGS": "t", "KEYS": "k"})
        asker = stack.enter_context(Asker(broker))
        found = {}
        for case in CASES:
            dead = f"%DLQ%{case.name}"
            until(partial(holds_one, asker, (dead, 0)), f"{dead} holds a message", within_s=WITHIN_S, every_s=0.1)
            found[case.name] = outcome(asker, broker, case, programs[case.name], (dead, 0))
        return found


def holds_one(asker: Asker, place: Queue) -> bool:
    return asker.bounds(place)[1] == 1


def outcome(asker: Asker, broker: str, case: Case, running: Program, place: Queue) -> Any:
    times = [line["times"] for line in list(running.lines) if line["event"] == "refused"]
    assert {line["topic"] for line in list(running.lines) if line["event"] == "refused"} == {case.name}
    (record,) = decode_records(asker.pull(place, 0, 1)[0])
    properties = decode_properties(record.properties)
    for known in ("ORIGIN_MESSAGE_ID", "CLUSTER", "MSG_REGION", "TRACE_ON", "CONSUME_START_TIME"):
        properties.pop(known, None)
    config = call(broker, 351, {"topic": place[0]}).json()
    return {
        "times": times,
        "dead": (bytes(record.body).decode(), record.reconsume_times, record.queue_id, record.sys_flag, record.flag),
        "properties": properties,
        "topic": {name: config[name] for name in ("perm", "readQueueNums", "writeQueueNums")},
    }


REFUSED, SENT_BACK = f"refused-messages-{SERVERS[0]}", f"sent-back-forms-{SERVERS[0]}"
QUESTIONS = [repr(case) for case in CASES]


@pytest.mark.slow
def test_refused_messages_end_as_at_apaches_broker(tmp_path: Path) -> None:
    ours, theirs = plain(outcomes("tianzhou", tmp_path)), recorded(REFUSED, QUESTIONS)
    for case in CASES:
        assert ours[case.name] == theirs[case.name], case
    for case in CASES:
        tries = STEPS if case.most < 0 else case.most
        assert ours[case.name]["times"] == list(range(tries + 1)), case


FORMS: dict[str, dict[str, object]] = {
    "short": {"group": "forms", "delayLevel": 0},
    "whole": {
        "group": "forms", "delayLevel": 0, "originMsgId": "X", "unitMode": "false",
        "maxReconsumeTimes": 16, "bname": "broker-a",
    },
    "another broker's name": {"group": "forms", "delayLevel": 0, "bname": "broker-z"},
    "in unit mode": {"group": "forms_unit", "delayLevel": 0, "unitMode": "true"},
    "a level": {"group": "forms", "delayLevel": 5},
    "too high a level": {"group": "forms", "delayLevel": 99},
    "no more": {"group": "forms_dead", "delayLevel": -1},
    "no tries": {"group": "forms_limit", "delayLevel": 0, "maxReconsumeTimes": 0},
    "one try": {"group": "forms_limit", "delayLevel": 0, "maxReconsumeTimes": 1},
    "less than none": {"group": "forms_limit", "delayLevel": 3, "maxReconsumeTimes": -1},
    "no group": {"delayLevel": 0},
    "no level": {"group": "forms"},
    "a group of a bad name": {"group": "no group!", "delayLevel": 0},
    "a group without retries": {"group": "forms_none", "delayLevel": 0},
    "a group without tries": {"group": "forms_few", "delayLevel": 0},
    "a group that may not consume": {"group": "forms_off", "delayLevel": 0},
    "a retry topic that may not be written": {"group": "forms_shut", "delayLevel": 0},
    "dead letters that may not be written": {"group": "forms_grave", "delayLevel": -1},
    "nothing there": {"group": "forms", "delayLevel": 0, "offset": 1 << 40},
    "a negative place": {"group": "forms", "delayLevel": 0, "offset": -1},
    "the middle of a message": {"group": "forms", "delayLevel": 0, "offset": 7},
}  # fmt: skip
GROUPS = sorted({str(form["group"]) for form in FORMS.values() if " " not in str(form.get("group", " "))})


def topic_config(broker: str, topic: str) -> dict[str, Any] | None:
    reply = call(broker, 351, {"topic": topic})
    shown = ("perm", "readQueueNums", "writeQueueNums", "topicSysFlag", "order")
    return {name: reply.json()[name] for name in shown} if reply.code == 0 else None


def is_dispatched(broker: str) -> bool:
    return bool(call(broker, RUNTIME_INFO).json()["table"]["dispatchBehindBytes"] == "0")


def answers(kind: str, folder: Path) -> dict[str, Any]:
    """Return the code for each form, the positions of the copies, and the created topics."""
    with broker_of(kind, folder) as (namesrv, broker), Asker(broker) as asker:
        frames.create_topic(namesrv, broker, "forms", 1)
        make_group(broker, "forms_none", retryQueueNums=0)
        make_group(broker, "forms_few", retryMaxTimes=0)
        make_group(broker, "forms_off", consumeEnable=False)
        make_topic(broker, "%RETRY%forms_shut", 4)
        make_topic(broker, "%DLQ%forms_grave", 4)
        frames.send(broker, "forms", 0, b"poison", {"UNIQ_KEY": "FORMS", "TAGS": "t", "DELAY": "0"})
        until(partial(holds_one, asker, ("forms", 0)), "the message is there")
        (record,) = decode_records(asker.pull(("forms", 0), 0, 1)[0])
        found: dict[str, Any] = {}
        for name, form in FORMS.items():
            # Without the topic, 5.3.3 stores dead letters and then fails in its own statistics.
            usual = {"offset": record.physical_offset, "originTopic": "forms"}
            found[name] = asker.ask(36, **(usual | form)).code
        until(partial(is_dispatched, broker), "queues follow the log")
        found["waiting"] = [asker.bounds(("SCHEDULE_TOPIC_XXXX", n))[1] for n in range(18)]
        for group in GROUPS:
            for topic in (f"%RETRY%{group}", f"%DLQ%{group}"):
                found[topic] = topic_config(broker, topic)
            found[f"dead letters of {group}"] = asker.bounds((f"%DLQ%{group}", 0))[1]
        return found


def test_every_form_of_sending_back_is_answered_as_by_apaches_broker(tmp_path: Path) -> None:
    ours, theirs = plain(answers("tianzhou", tmp_path)), recorded(SENT_BACK, [repr(FORMS)])
    different = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    assert not different, different


@pytest.mark.slow
def test_apaches_broker_ends_refused_messages_as_recorded(tmp_path: Path) -> None:
    live = outcomes(SERVERS[0], tmp_path)
    is_as_recorded(REFUSED, live, source=f"broker {SERVERS[0]}", questions=QUESTIONS)


@pytest.mark.slow
def test_apaches_broker_answers_forms_of_sending_back_as_recorded(tmp_path: Path) -> None:
    live = answers(SERVERS[0], tmp_path)
    is_as_recorded(SENT_BACK, live, source=f"broker {SERVERS[0]}", questions=[repr(FORMS)])
