"""One run of every foreign client under access control: first with the right account, then with refused ones.

All clients start at the same time, and the tests check their results. Java's clients share one JVM per version
(`Access.java`); one version runs with TLS, the other without.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import frames
from frames import Account
from guarded import ACCOUNTS, ADMIN, APPLICATION, BY_ADDRESS, OUTSIDER, READER, TRACES, USERS, Guarded
from strangers import STRANGERS, TLS, Line, Program
from toolchain import ToolchainMissingError
from ways import CPP, GO, JAVA, NODE

from tianzhou.records.codec import decode_records
from waiting import until

NAMES = (*JAVA, GO, CPP, NODE)
OVER_TLS = {(ACCOUNTS, JAVA[0]), (USERS, JAVA[1])}
COUNT = 10
"""Messages of each consumed topic."""
SENDS = dict.fromkeys((*JAVA, GO), 16) | {CPP: 8, NODE: 4}
CONF: dict[str, object] = {
    "traceTopicEnable": "true",
    "messageDelayLevel": "1s 1s " + " ".join(["1s"] * 16),
    "transactionTimeOut": 500,
    "transactionCheckInterval": 1_000,
    "transactionOpBatchInterval": 300,
}
MADE = ("send", "push", "dead", "order", "tx", "white", "ask", "trace", "one")
TOPICS = (*MADE, "new")
"""Topics that clients may use; the first send creates the last one."""
REFUSED = ("wrong", "unsigned", "reader", "outsider")
"""Refused credentials: another account's secret, none, an account with read permission only, one without
permissions.
"""
PATIENCE = 120
UPDATE_GROUP = 200
QUERY_MESSAGE = 12
WRONG = Account(APPLICATION.access_key, "another-secret")
ACCOUNT_OF: dict[str, Account | None] = {"wrong": WRONG, "unsigned": None, "reader": READER, "outsider": OUTSIDER}
_GROUP_SETTINGS = {
    "consumeEnable": True, "consumeFromMinEnable": True, "consumeBroadcastEnable": True, "retryQueueNums": 1,
    "retryMaxTimes": 1, "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True,
}  # fmt: skip


def topic(name: str, noun: str) -> str:
    """Return the name of a client's topic."""
    return f"acl_{noun}_{name}".replace(".", "_").replace("-", "_")


def names_in_use() -> tuple[list[str], list[str]]:
    """Return topics and groups of all clients."""
    topics = [topic(name, noun) for name in NAMES for noun in TOPICS]
    return topics, [f"{one}_{role}" for one in topics for role in "gl"]


@dataclasses.dataclass
class Run:
    """The results of a client: lines by step, or the error that ended it."""

    lines: dict[str, list[Line]] = dataclasses.field(default_factory=dict)
    error: BaseException | None = None
    missing: str = ""
    unique_keys: list[str] = dataclasses.field(default_factory=list)


def start(name: str, servers: Guarded, account: Account | None, *arguments: object, **options: str) -> Program:
    """Start a foreign program with credentials."""
    stranger = STRANGERS[name]
    if account is not None:
        options |= {"access_key": account.access_key, "secret_key": account.secret_key}
    environment = ["env", *(f"STRANGER_{option.upper()}={value}" for option, value in options.items())]

    def command(home: Path) -> list[str]:
        line = stranger.resolve(home)
        if name not in JAVA:
            return [*environment, *line]
        tls = [TLS] if (servers.kind, name) in OVER_TLS and servers.logs else []
        return [line[0], *tls, *line[1:-1], "Access"]

    return Program(dataclasses.replace(stranger, resolve=command), *map(str, arguments))


def prepare(name: str, servers: Guarded) -> list[str]:
    """Create the topics of a client, and send the messages it will consume; return unique keys of one topic."""
    for noun in MADE:
        servers.make_topic(topic(name, noun))
    keys = []
    for noun in ("push", "order", "dead"):
        for i in range(COUNT if noun != "dead" else 1):
            # C++ and Node refuse message 5 of that topic until it becomes a dead letter.
            index = 5 if noun == "dead" else i
            key = uuid.uuid4().hex.upper()
            keys += [key] if noun == "push" else []
            properties = {"index": str(index), "UNIQ_KEY": key, "TAGS": "tag"}
            frames.send(servers.broker, topic(name, noun), 0, b"body %d" % index, properties, ADMIN)
    group = f"{topic(name, 'dead')}_g"
    assert servers.ask(UPDATE_GROUP, body=json.dumps({"groupName": group, **_GROUP_SETTINGS}).encode()).code == 0
    if name == GO:
        # It notices a retry topic created during its run only after 20 s; Java's are created by the heartbeat.
        for noun in ("push", "dead"):
            servers.make_topic(f"%RETRY%{topic(name, noun)}_g")
    return keys


def run_right(name: str, servers: Guarded) -> Run:
    """Let a client run all its operations with the permitted account."""
    run = Run()
    try:
        run.unique_keys = prepare(name, servers)
        (_java if name in JAVA else _go if name == GO else _others)(name, servers, run)
    except ToolchainMissingError as error:
        run.missing = str(error)
    except BaseException as error:  # noqa: BLE001 - the tests raise it
        run.error = error
    return run


class Steps:
    """Steps of the Java program, which run at the same time.

    Args:
        name: The client.
        servers: The servers it uses.
    """

    def __init__(self, name: str, servers: Guarded) -> None:
        self.program = start(name, servers, None, servers.namesrv)
        self._name = name
        self._ids: dict[str, str] = {}

    def begin(self, step: str, noun: str, count: int, account: Account | None, id_: str = "") -> None:
        """Begin a step; its lines have the id, by default the step's name."""
        key, secret = ("-", "-") if account is None else (account.access_key, account.secret_key)
        self.program.give(f"{id_ or step} {key} {secret} {step} {topic(self._name, noun)} {count}")

    def end(self, *ids: str) -> dict[str, list[Line]]:
        """Wait until steps have ended; return their lines."""
        for id_ in ids:
            self.program.wait_for(
                lambda lines, id_=id_: any(one["event"] == "end" and one["id"] == id_ for one in lines), PATIENCE, id_
            )
        lines = list(self.program.lines)
        return {one: [line for line in lines if line.get("id") == one] for one in ids}


def _java(name: str, servers: Guarded, run: Run) -> None:
    steps = Steps(name, servers)
    with steps.program:
        steps.program.await_start()
        # Run it alone while classes are loaded: a client abandons a route look-up after three seconds.
        steps.begin("send", "send", 4, APPLICATION)
        run.lines |= steps.end("send")
        for step, noun, count in (
            ("push", "push", COUNT), ("orderly", "order", COUNT), ("transact", "tx", 6),
            ("ask", "ask", 3), ("trace", "trace", 3), ("one", "new", 1),
        ):  # fmt: skip
            steps.begin(step, noun, count, APPLICATION)
        white = ["white"] if servers.kind == ACCOUNTS else []
        for id_ in white:
            steps.begin("transact", "white", 3, BY_ADDRESS, id_)
        steps.begin("lite", "send", SENDS[name], APPLICATION)
        steps.begin("pull", "push", 0, APPLICATION)
        run.lines |= steps.end("push", "orderly", "transact", "ask", "trace", "one", "lite", "pull", *white)
        traced = [one for line in run.lines["trace"] if line["event"] == "sent" for one in line["msgIds"]]
        await_traces(servers, traced, {"Pub"})
        await_traces(servers, run.unique_keys, {"SubBefore", "SubAfter"})
        steps.program.finish()


def _go(name: str, servers: Guarded, run: Run) -> None:
    with ExitStack() as stack:
        consuming = _consumers(stack, name, servers, {"push": "again", "order": "orderly"})
        dead = topic(name, "dead")
        consuming["dead"] = stack.enter_context(
            start(name, servers, APPLICATION, "refusing", servers.namesrv, f"{dead}_g", dead, "false", 1)
        )
        tx = topic(name, "tx")
        transacting = start(name, servers, APPLICATION, "transact", servers.namesrv, tx, f"{tx}_p", 0, 4)
        stack.enter_context(transacting)
        by_address = None
        if servers.kind == ACCOUNTS:
            white = topic(name, "white")
            by_address = start(name, servers, BY_ADDRESS, "transact", servers.namesrv, white, f"{white}_p", 0, 4)
            stack.enter_context(by_address)
        trace, send = topic(name, "trace"), topic(name, "send")
        tracing = start(name, servers, APPLICATION, "send", servers.namesrv, trace, f"{trace}_p", "traced", 3, 0)
        stack.enter_context(tracing)
        modes = [f"{mode}:4" for mode in ("sync", "async", "oneway", "batch")]
        with start(name, servers, APPLICATION, "produce", servers.namesrv, send, f"{send}_p", 0, *modes) as producing:
            run.lines["send"] = producing.finish()
        run.lines["one"] = _one(name, servers, APPLICATION, "new")
        # Its pull consumer sends unsigned requests to name servers.
        pulling = start(name, servers, APPLICATION, "poll", servers.open_namesrv, f"{send}_l", send)
        stack.enter_context(pulling)
        transacting.await_start()
        until(lambda: servers.stored(tx) == 2, "what is to be committed is", within_s=PATIENCE, every_s=0.1)
        run.lines["transact"] = transacting.finish()
        if by_address is not None:
            until(lambda: servers.stored(white) == 2, "the address is enough to commit", within_s=PATIENCE, every_s=0.1)
            run.lines["white"] = by_address.finish()
        # Messages that it sends back itself arrive much later.
        pulling.wait_for(
            lambda lines: {line["i"] for line in taken(lines)} == set(range(SENDS[name])), PATIENCE, "not all is pulled"
        )
        run.lines["lite"] = pulling.finish()
        _await_consumed(name, servers, run, consuming)
        traced = [line["msgId"] for line in tracing.lines if line["event"] == "sent"]
        run.lines["trace"] = list(tracing.lines)
        await_traces(servers, traced, {"Pub"})
        tracing.finish()


def _others(name: str, servers: Guarded, run: Run) -> None:
    with ExitStack() as stack:
        roles = {"push": "again", "dead": "dead"} | ({"order": "orderly"} if name == CPP else {})
        consuming = _consumers(stack, name, servers, roles)
        send = topic(name, "send")
        modes = ["sync:4", "oneway:4"] if name == CPP else ["promise:4"]
        with start(name, servers, APPLICATION, "produce", servers.namesrv, send, f"{send}_p", 0, *modes) as producing:
            run.lines["send"] = producing.finish()
        if name == CPP:
            run.lines["one"] = _one(name, servers, APPLICATION, "new")
            with start(name, servers, APPLICATION, "read", servers.namesrv, f"{send}_l", send) as reading:
                run.lines["lite"] = reading.finish()
        _await_consumed(name, servers, run, consuming)


def _consumers(stack: ExitStack, name: str, servers: Guarded, roles: dict[str, str]) -> dict[str, Program]:
    running = {}
    for noun, role in roles.items():
        one = topic(name, noun)
        running[noun] = stack.enter_context(
            start(name, servers, APPLICATION, "take", servers.namesrv, role, f"{one}_g", one, 1)
        )
    return running


def _await_consumed(name: str, servers: Guarded, run: Run, consuming: dict[str, Program]) -> None:
    dead = topic(name, "dead")
    for noun, program in consuming.items():
        if noun == "dead":
            until(lambda: servers.stored(f"%DLQ%{dead}_g") == 1, "a dead letter", within_s=PATIENCE, every_s=0.1)
        else:
            program.wait_for(lambda lines: done(lines) == set(range(COUNT)), PATIENCE, f"{noun}: not all arrived")
        run.lines[{"order": "orderly"}.get(noun, noun)] = program.finish()


def taken(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of received messages."""
    return [line for line in list(lines) if line["event"] == "received"]


def done(lines: Sequence[Line]) -> set[int]:
    """Return the numbers of received messages that were not refused."""
    return {line["i"] for line in taken(lines) if not line["failed"]}


def await_traces(servers: Guarded, keys: Sequence[str], kinds: set[str]) -> None:
    """Wait until records of these kinds about messages are in the trace topic."""

    def found(key: str) -> set[str]:
        fields: dict[str, object] = {
            "topic": TRACES, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": (1 << 63) - 1
        }  # fmt: skip
        reply = servers.ask(QUERY_MESSAGE, fields)
        text = b"".join(bytes(record.body) for record in decode_records(reply.body)) if reply.code == 0 else b""
        lines = [part.split(b"\x01") for part in text.split(b"\x02")]
        return {line[0].decode() for line in lines if key.encode() in line}

    assert keys
    until(lambda: all(found(key) >= kinds for key in keys), f"{kinds} are traced", within_s=PATIENCE, every_s=0.2)


def run_refused(name: str, servers: Guarded) -> Run:
    """Let a client try with each of the unpermitted accounts: send one message, and consume."""
    run = Run()
    try:
        if name in JAVA:
            steps = Steps(name, servers)
            with steps.program:
                steps.begin("one", "one", 1, READER, "warm")
                steps.end("warm")
                ids = []
                for who in REFUSED:
                    ids += [f"{step}-{who}" for step in ("one", "pull", "push")]
                    for step, noun, count in (("one", "one", 1), ("pull", "push", 0), ("push", "push", 0)):
                        steps.begin(step, noun, count, ACCOUNT_OF[who], f"{step}-{who}")
                run.lines |= steps.end(*ids)
                steps.program.finish()
            return run
        with ExitStack() as stack:
            push = topic(name, "push")
            sending = {who: stack.enter_context(_sending(name, servers, ACCOUNT_OF[who], "one")) for who in REFUSED}
            consuming = {}
            for who in REFUSED:
                arguments = ("take", servers.namesrv, "plain", f"{push}_l", push, 1)
                consuming[who] = stack.enter_context(start(name, servers, ACCOUNT_OF[who], *arguments))
            # A reader with permission has read all messages at this point, and other readers would have, too.
            consuming["reader"].wait_for(lambda lines: done(lines) == set(range(COUNT)), PATIENCE, "not all arrived")
            for who, program in consuming.items():
                run.lines[f"push-{who}"] = list(program.lines)
            for who, program in sending.items():
                run.lines[f"one-{who}"] = _ended(program)
    except ToolchainMissingError as error:
        run.missing = str(error)
    except BaseException as error:  # noqa: BLE001 - the tests raise it
        run.error = error
    return run


def _sending(name: str, servers: Guarded, account: Account | None, noun: str) -> Program:
    mode = {NODE: "promise"}.get(name, "sync")
    one = topic(name, noun)
    arguments = ("produce", servers.namesrv, one, f"{one}_p", 0, f"{mode}:1")
    return start(name, servers, account, *arguments, route_s="1")


def _ended(program: Program) -> list[Line]:
    program.wait_for(lambda lines: any(line["event"] in ("error", "done") for line in lines), PATIENCE, "no end")
    return list(program.lines)


def _one(name: str, servers: Guarded, account: Account, noun: str) -> list[Line]:
    with _sending(name, servers, account, noun) as program:
        return _ended(program)


@contextmanager
def of_all(work: Callable[[str, Guarded], Run], servers: Guarded) -> Iterator[dict[str, Future[Run]]]:
    """Let all clients run at the same time."""
    with ThreadPoolExecutor(len(NAMES)) as pool:
        yield {name: pool.submit(work, name, servers) for name in NAMES}
