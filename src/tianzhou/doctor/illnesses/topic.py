"""Reasons why messages of a topic do not arrive: its route, permissions and queues, and its producers' clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.illnesses.group import duration
from tianzhou.doctor.observations import TopicSeen
from tianzhou.model import TopicRoute
from tianzhou.model.topic import PERM_WRITE

CLOCK_MS: Final = 5_000
"""Milliseconds by which a message's birth time may exceed its store time, because clocks differ."""

MISSING = Illness(
    "topic-missing",
    Severity.error,
    "Topic {topic} does not exist, and {brokers} do not make topics by themselves (autoCreateTopicEnable=false).",
    "Make it: tianzhou topic create {topic}; or correct the name.",
)
UNKNOWN = Illness(
    "topic-unknown",
    Severity.warning,
    "Topic {topic} does not exist; the first message sent to it will make it on one broker, with its default queues.",
    "Make it on all brokers with as many queues as it needs: tianzhou topic create {topic} --queues 8",
)
WITHOUT_ROUTE = Illness(
    "topic-without-route",
    Severity.error,
    "Brokers {brokers} have topic {topic} and no name server leads to it: they have not registered it.",
    "See whether they reach their name servers (namesrvAddr, registerBroker in their logs): tianzhou doctor broker",
)
NOT_WRITABLE = Illness(
    "topic-not-writable",
    Severity.error,
    "Topic {topic} may not be written on {brokers}, so sends go elsewhere or are refused.",
    "Give it its permission back: tianzhou topic create {topic} --queues {queues} --perm rw",
)
NOT_READABLE = Illness(
    "topic-not-readable",
    Severity.error,
    "Topic {topic} may not be read on {brokers}: consumers get nothing of what is there.",
    "Give it its permission back: tianzhou topic create {topic} --queues {queues} --perm rw",
)
WIPED = Illness(
    "write-permission-wiped",
    Severity.error,
    "Name servers tell producers not to write topic {topic} on {brokers}, although these would take it: somebody has "
    "wiped their write permission.",
    "When the work on the broker is done: mqadmin addWritePerm -n NAMESRV -b {broker}",
)
MORE_WRITTEN_THAN_READ = Illness(
    "more-queues-written-than-read",
    Severity.error,
    "Topic {topic} has more queues to write than to read on {brokers}: what goes to the last ones is "
    "delivered to nobody.",
    "Have as many read as written: tianzhou topic create {topic} --queues {queues}",
)
QUEUES_DIFFER = Illness(
    "queue-numbers-differ",
    Severity.warning,
    "Brokers have different numbers of queues of topic {topic}, so that they get different shares of its messages.",
    "If that is not meant: tianzhou topic create {topic} --queues {queues}",
)
NOT_ON_ALL_BROKERS = Illness(
    "topic-not-on-all-brokers",
    Severity.warning,
    "Topic {topic} is not on {brokers}: they take none of its messages, and a failure of the others stops it.",
    "Make it there as well: tianzhou topic create {topic} --queues {queues}",
)
BROKER_WITHOUT_ROUTE = Illness(
    "broker-not-in-route",
    Severity.error,
    "{brokers} have topic {topic}, and its route does not lead there: what they hold is read by nobody.",
    "They register every 30 s; if it stays so, look at their logs for registrations that fail.",
)
ROUTES_DIFFER = Illness(
    "routes-differ",
    Severity.error,
    "Name servers lead to different queues of topic {topic}: clients see another topic, depending on whom they ask.",
    "Give every broker the addresses of all name servers (namesrvAddr).",
)
MASTER_GONE = Illness(
    "topic-without-master",
    Severity.error,
    "{brokers} have queues of topic {topic} and no master now: these queues cannot be written.",
    "Start the master, or let a group elect one: tianzhou doctor broker",
)
PRODUCER_CLOCK = Illness(
    "producer-clock-off",
    Severity.warning,
    "Messages of topic {topic} from {host} are born {ahead} after they were stored: the clock there or at the broker "
    "is off.",
    "Have both machines take the time from the network (NTP).",
)

ILLNESSES: Final = (
    MISSING, UNKNOWN, WITHOUT_ROUTE, NOT_WRITABLE, NOT_READABLE, WIPED, MORE_WRITTEN_THAN_READ, QUEUES_DIFFER,
    NOT_ON_ALL_BROKERS, BROKER_WITHOUT_ROUTE, ROUTES_DIFFER, MASTER_GONE, PRODUCER_CLOCK,
)  # fmt: skip


def findings(seen: TopicSeen) -> Iterator[Finding]:
    """Yield the faults of a topic."""
    subject, words = f"topic {seen.topic}", {"topic": seen.topic}
    configs = seen.configs
    if not seen.exists:
        refusing = sorted(seen.masters - seen.auto_create)
        if refusing and not seen.auto_create:
            evidence = {"autoCreateTopicEnable": False, "brokers": refusing}
            yield MISSING.found(subject, evidence, brokers=", ".join(refusing), **words)
        else:
            yield UNKNOWN.found(subject, {"autoCreateTopicEnable": sorted(seen.auto_create)}, **words)
        return
    queues = max((config.write_queue_nums for config in configs.values()), default=8)
    route = seen.route
    if route is None:
        yield WITHOUT_ROUTE.found(subject, {"brokers": sorted(configs)}, brokers=", ".join(sorted(configs)), **words)
    else:
        yield from _routed(seen, route, queues)
    for illness, brokers in (
        (NOT_WRITABLE, [name for name, config in configs.items() if not config.writable]),
        (NOT_READABLE, [name for name, config in configs.items() if not config.readable]),
        (
            MORE_WRITTEN_THAN_READ,
            [n for n, config in configs.items() if config.write_queue_nums > config.read_queue_nums],
        ),
    ):
        if brokers:
            evidence = {
                name: {
                    "perm": configs[name].perm,
                    "readQueueNums": configs[name].read_queue_nums,
                    "writeQueueNums": configs[name].write_queue_nums,
                }
                for name in brokers
            }
            yield illness.found(subject, evidence, brokers=", ".join(brokers), queues=queues, **words)
    numbers = {name: config.write_queue_nums for name, config in configs.items()}
    if len(set(numbers.values())) > 1:
        yield QUEUES_DIFFER.found(subject, {"writeQueueNums": numbers}, queues=queues, **words)
    if absent := sorted(seen.masters - set(configs)):
        yield NOT_ON_ALL_BROKERS.found(subject, {"absent": absent}, brokers=", ".join(absent), queues=queues, **words)
    yield from _clocks(seen, subject)


def _routed(seen: TopicSeen, route: TopicRoute, queues: int) -> Iterator[Finding]:
    subject, words = f"topic {seen.topic}", {"topic": seen.topic}
    shown = {data.broker_name: data for data in route.queue_datas}
    wiped = sorted(
        name
        for name, config in seen.configs.items()
        if name in shown and config.writable and not shown[name].perm & PERM_WRITE
    )
    if wiped:
        evidence = {name: {"perm": seen.configs[name].perm, "perm_in_route": shown[name].perm} for name in wiped}
        yield WIPED.found(subject, evidence, brokers=", ".join(wiped), broker=wiped[0], **words)
    if lost := sorted(set(seen.configs) - set(shown)):
        yield BROKER_WITHOUT_ROUTE.found(
            subject, {"route": sorted(shown), "brokers": lost}, brokers=", ".join(lost), **words
        )
    routes = {address: _places(found) for address, found in seen.routes.items()}
    if len({tuple(places) for places in routes.values()}) > 1:
        yield ROUTES_DIFFER.found(subject, {"routes": routes}, **words)
    if gone := sorted(data.broker_name for data in route.broker_datas if data.master is None):
        yield MASTER_GONE.found(subject, {"brokers": gone}, brokers=", ".join(gone), **words)


def _places(route: TopicRoute | None) -> list[str]:
    if route is None:
        return []
    return sorted(
        f"{data.broker_name}: {data.write_queue_nums} written, {data.read_queue_nums} read, perm {data.perm}"
        for data in route.queue_datas
    )


def _clocks(seen: TopicSeen, subject: str) -> Iterator[Finding]:
    ahead: dict[str, int] = {}
    for message in seen.newest:
        host = message.born_host.rpartition(":")[0] or message.born_host
        ahead[host] = max(ahead.get(host, 0), message.born_ms - message.stored_ms)
    for host, milliseconds in ahead.items():
        if milliseconds > CLOCK_MS:
            yield PRODUCER_CLOCK.found(
                subject, {"born_after_stored_ms": milliseconds, "born_host": host},
                topic=seen.topic, host=host, ahead=duration(milliseconds),
            )  # fmt: skip
