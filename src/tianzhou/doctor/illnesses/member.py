"""Faults of a slow or stuck group member: its handler, its locks, its pulls, its clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.illnesses.group import duration
from tianzhou.doctor.observations import GroupSeen, MemberSeen, number
from tianzhou.model import names
from tianzhou.wire.bodies.clients import ConsumerRunningInfo, ProcessQueueInfo

SLOW_MS: Final = 1_000
"""Milliseconds per message above which a handler counts as slow."""
HANGS_MS: Final = 60_000
"""Milliseconds for which a member may have unfinished messages and finish none."""
NO_PULL_MS: Final = 60_000
"""Milliseconds for which a member may send no pull. A long poll takes 15 to 30 s."""
CLOCK_MS: Final = 5_000
FULL: Final = 0.9
"""Share of `pullThresholdForQueue` from which a member stops pulling because its handlers are too slow."""
SHOWN: Final = 5

NO_ANSWER = Illness(
    "member-does-not-answer",
    Severity.warning,
    "Member {client_id} of group {group} is connected and does not say what it does.",
    "Its process may hang or have no time: look at its log and processor. Clients before 3.1.8 cannot answer.",
)
HANDLER_SLOW = Illness(
    "handler-slow",
    Severity.warning,
    "Handlers of member {client_id} take {took} a message in topic {topic}.",
    "Look at what the handler waits for; let more of them run at a time (consumeThreadMax, consume_concurrency).",
)
HANDLER_HANGS = Illness(
    "handler-hangs",
    Severity.error,
    "Member {client_id} has {count} messages of topic {topic} in hand and has finished none for {since}: its handler "
    "hangs, or is far too slow. After {timeout} min they are delivered again (consumeTimeout).",
    "Look at the member's threads: mqadmin consumerStatus -g {group} -i {client_id} -s; give what the handler calls a "
    "time limit.",
)
HANDLER_FAILS = Illness(
    "handler-fails",
    Severity.warning,
    "Handlers of member {client_id} fail in topic {topic}: {failed} messages in the last hour.",
    "The reason stands in the member's log; failed messages come again, and after 16 times are dead letters.",
)
NOT_LOCKED = Illness(
    "queue-lock-not-held",
    Severity.error,
    "Member {client_id} consumes in order and has not got the lock of {count} of its queues in topic {topic}: another "
    "process holds it, or held it and was killed.",
    "Locks of members that are gone end after a minute. If it stays, another process with the same group consumes in "
    "order: tianzhou group describe {group}",
)
NO_PULLS = Illness(
    "member-does-not-pull",
    Severity.error,
    "Member {client_id} has not pulled {count} of its queues in topic {topic} for {since}, although its handlers are "
    "not behind: it is suspended, or its process hangs.",
    "Resume the consumer, or restart its process.",
)
CLOCK_OFF = Illness(
    "client-clock-off",
    Severity.warning,
    "The clock of member {client_id} is {ahead} ahead: times in its messages, delays and time-outs are wrong.",
    "Have its machine take the time from the network (NTP).",
)

ILLNESSES: Final = (NO_ANSWER, HANDLER_SLOW, HANDLER_HANGS, HANDLER_FAILS, NOT_LOCKED, NO_PULLS, CLOCK_OFF)


def findings(seen: GroupSeen) -> Iterator[Finding]:
    """Yield the faults of a group's members."""
    for member in seen.members:
        if member.running is None:
            yield NO_ANSWER.found(
                seen.subject, {"client_id": member.client_id, "why": member.why},
                client_id=member.client_id, group=seen.group,
            )  # fmt: skip
        else:
            yield from _handlers(seen, member, member.running)
            yield from _queues(seen, member, member.running)


def _handlers(seen: GroupSeen, member: MemberSeen, running: ConsumerRunningInfo) -> Iterator[Finding]:
    for topic, status in running.status_table.items():
        words = {"client_id": member.client_id, "group": seen.group, "topic": topic}
        if status.consume_rt >= SLOW_MS:
            evidence = {
                "client_id": member.client_id,
                "consumeRT_ms": round(status.consume_rt, 1),
                "consumed_per_second": round(status.consume_ok_tps, 2),
            }
            yield HANDLER_SLOW.found(seen.subject, evidence, took=duration(status.consume_rt), **words)
        if status.consume_failed_msgs or status.consume_failed_tps > 0:
            evidence = {
                "client_id": member.client_id,
                "failed_last_hour": status.consume_failed_msgs,
                "failed_per_second": round(status.consume_failed_tps, 2),
            }
            yield HANDLER_FAILS.found(seen.subject, evidence, failed=status.consume_failed_msgs, **words)


def _queues(seen: GroupSeen, member: MemberSeen, running: ConsumerRunningInfo) -> Iterator[Finding]:
    pushed = member.property("PROP_CONSUME_TYPE") != "CONSUME_ACTIVELY"
    orderly = member.property("PROP_CONSUMEORDERLY") == "true"
    by_topic: dict[str, dict[str, ProcessQueueInfo]] = {}
    for queue, info in running.mq_table.items():
        if not info.dropped:
            by_topic.setdefault(queue.topic, {})[str(queue)] = info
    started_ms = number(member.property("PROP_CONSUMER_START_TIMESTAMP"), 0)
    ahead_ms = max(
        (max(info.last_pull_timestamp, info.last_consume_timestamp) for info in running.mq_table.values()), default=0
    )
    ahead_ms = max(ahead_ms, int(started_ms)) - seen.now_ms
    if ahead_ms > CLOCK_MS:
        yield CLOCK_OFF.found(
            seen.subject, {"client_id": member.client_id, "ahead_ms": ahead_ms},
            client_id=member.client_id, ahead=duration(ahead_ms),
        )  # fmt: skip
    if not pushed:
        return
    threshold = number(member.property("pullThresholdForQueue"), 1_000)
    for topic, queues in by_topic.items():
        words = {"client_id": member.client_id, "group": seen.group, "topic": topic}
        hanging = {
            name: info
            for name, info in queues.items()
            if info.cached_msg_count
            and (last := max(info.last_consume_timestamp, started_ms))  # not every client reports it
            and seen.now_ms - last >= HANGS_MS
        }
        if hanging:
            since = seen.now_ms - max(max(info.last_consume_timestamp, started_ms) for info in hanging.values())
            evidence = {
                "client_id": member.client_id,
                "in_hand": {name: info.cached_msg_count for name, info in list(hanging.items())[:SHOWN]},
                "none_finished_for_ms": round(since),
            }
            yield HANDLER_HANGS.found(
                seen.subject, evidence,
                count=sum(info.cached_msg_count for info in hanging.values()), since=duration(since),
                timeout=member.property("consumeTimeout") or 15, **words,
            )  # fmt: skip
        unlocked = [name for name, info in queues.items() if not info.locked]
        if orderly and unlocked and not seen.broadcasting and not topic.startswith(names.RETRY_PREFIX):
            evidence = {"client_id": member.client_id, "queues": unlocked[:SHOWN]}
            yield NOT_LOCKED.found(seen.subject, evidence, count=len(unlocked), **words)
        silent = [
            info
            for name, info in queues.items()
            if info.cached_msg_count < threshold * FULL
            and name not in hanging
            and (info.locked or not orderly)
            and info.last_pull_timestamp  # not every client reports it
            and seen.now_ms - max(info.last_pull_timestamp, started_ms) >= NO_PULL_MS
        ]
        if silent:
            since = min(seen.now_ms - max(info.last_pull_timestamp, started_ms) for info in silent)
            evidence = {"client_id": member.client_id, "queues": len(silent), "not_pulled_for_ms": round(since)}
            yield NO_PULLS.found(seen.subject, evidence, count=len(silent), since=duration(since), **words)
