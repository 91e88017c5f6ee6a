"""Faults of a stuck or lagging group: its settings, its queues, its offsets, its filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.observations import GroupSeen, MessageSeen, ProgressSeen
from tianzhou.errors import FilterSyntaxError
from tianzhou.filter import SQL92, IncomparableError, parse_sql, parse_tags
from tianzhou.model import MessageQueue, SubscriptionData, names

FEWEST_SAMPLES: Final = 8
"""Minimum number of sampled messages to judge a filter that selects none of them."""
BEHIND_MS: Final = 60_000
"""Milliseconds that the next message may wait before a group counts as lagging."""
LOSS_SHARE: Final = 0.8
"""Share of the retention time after which unread messages are about to be lost."""
POISON_TIMES: Final = 3
"""Deliveries after which a failed message is suspected to fail at each retry."""
HOUR_MS: Final = 3_600_000
SHOWN: Final = 5
"""Maximum number of queues, members or messages in a finding's evidence."""

UNKNOWN = Illness(
    "group-unknown",
    Severity.error,
    "No broker knows group {group}: nobody has ever consumed with it, or its name is another one.",
    "Look for it with: tianzhou group list",
)
WITHOUT_MEMBERS = Illness(
    "group-without-members",
    Severity.error,
    "Group {group} has no member, so nobody reads its {lag} unread messages.",
    "Start a consumer of the group. If one runs, see what it can reach, on its machine: tianzhou doctor connect",
)
DISABLED = Illness(
    "group-disabled",
    Severity.error,
    "Group {group} may not consume on {brokers} (consumeEnable=false).",
    "Allow it again: mqadmin updateSubGroup -c CLUSTER -g {group} -s true, or in Python "
    'admin.groups.update("{group}", consume_enable=True)',
)
BROADCAST_REFUSED = Illness(
    "group-broadcast-refused",
    Severity.error,
    "Members of group {group} ask for every message each (BROADCASTING), which {brokers} refuse to it.",
    "Have its members use CLUSTERING, or allow it in Python: "
    'admin.groups.update("{group}", consume_broadcast_enable=True)',
)
BROADCASTING = Illness(
    "group-broadcasting",
    Severity.note,
    "Each member of group {group} gets every message (BROADCASTING): members share no work, failed messages do not "
    "come again, and brokers do not know how far each is.",
    "If members were meant to share the messages, have all of them use CLUSTERING.",
)
MORE_MEMBERS_THAN_QUEUES = Illness(
    "more-members-than-queues",
    Severity.warning,
    "Topic {topic} has {queues} queues and group {group} {members} members: {idle} of them get nothing.",
    "Stop the idle members, or give the topic more queues: tianzhou topic create {topic} --queues {members}",
)
QUEUES_WITHOUT_READER = Illness(
    "queues-without-reader",
    Severity.error,
    "No member of group {group} reads {count} queues of topic {topic}, which have {lag} unread messages.",
    "Restart the members, those with another allocation strategy or subscription than the others first.",
)
QUEUE_READ_TWICE = Illness(
    "queue-read-twice",
    Severity.warning,
    "Several members of group {group} read the same queue of topic {topic}, so messages are consumed twice.",
    "Wait half a minute for the next rebalance. If it stays, have all members use one allocation strategy.",
)
SUBSCRIPTIONS_DIFFER = Illness(
    "subscriptions-differ",
    Severity.error,
    "Members of group {group} subscribe different things, so each misses messages that went to another one.",
    "Have all members subscribe the same topics with the same expressions, or give each kind a group of its own.",
)
CLIENT_IDS_CLASH = Illness(
    "client-ids-clash",
    Severity.error,
    "Several processes go by client id {client_id} in group {group}: each takes itself for the only one, so queues "
    "are read twice or by nobody.",
    "Give each process an id of its own: another instanceName or unitName, or no client_id at all.",
)
CONSUME_MODES_DIFFER = Illness(
    "consume-modes-differ",
    Severity.error,
    "Some members of group {group} consume in order and others do not, so that order holds for nobody.",
    "Have all members register the same kind of handler (orderly or concurrent).",
)
FILTER_DROPS_ALL = Illness(
    "filter-drops-all",
    Severity.warning,
    "The expression {expression!r} of group {group} selects none of the newest {count} messages of topic {topic}: the "
    "group goes on, and its handlers see nothing.",
    "Compare the expression with what producers set, tags and properties in capitals and small letters: "
    "tianzhou consume {topic} --from-beginning --max 5",
)
FILTER_UNREADABLE = Illness(
    "filter-unreadable",
    Severity.error,
    "The expression {expression!r} of group {group} in topic {topic} cannot be read.",
    "Correct it: {error}",
)
OFFSET_BELOW_MIN = Illness(
    "offset-below-min",
    Severity.error,
    "Group {group} wants to go on in topic {topic} at messages that are deleted: {lost} were never consumed.",
    "Members go on with the first message there is. To keep messages longer raise fileReservedTime; to go elsewhere: "
    "tianzhou group reset {group} -t {topic} --to earliest",
)
OFFSET_ABOVE_MAX = Illness(
    "offset-above-max",
    Severity.error,
    "Group {group} stands beyond the end of topic {topic}: it gets nothing until the queues have grown that far, and "
    "misses what comes before. The store lost its end, or the topic was deleted and made again.",
    "Set it to what is there: tianzhou group reset {group} -t {topic} --to earliest (or latest)",
)
BEHIND = Illness(
    "group-behind",
    Severity.warning,
    "Group {group} is {lag} messages behind in topic {topic}; the next one has waited {waits}.",
    "See which queues and members: tianzhou group lag {group} -t {topic}",
)
RATE_TOLERANCE: Final = 0.05
"""Share of the incoming rate by which two rates may differ and still count as equal."""
LEAST_FALL_BACK_TPS: Final = 0.05
"""Smallest difference of two rates that counts, in messages per second."""
NEVER_CATCHES_UP = Illness(
    "never-catches-up",
    Severity.error,
    "Group {group} is {lag} messages behind in topic {topic} and falls back further: {come_in} messages/s come in, and "
    "it consumes {consumed}.",
    "Make handlers faster or let more run at a time; add members, up to as many as there are queues.",
)
ABOUT_TO_BE_LOST = Illness(
    "unread-about-to-be-lost",
    Severity.error,
    "The oldest message that group {group} has not read in topic {topic} is {age} old, and {broker} keeps messages "
    "for {hours} hours: it will be deleted unread.",
    "Raise fileReservedTime now: tianzhou config set fileReservedTime={longer}; then see why the group is behind.",
)
RETRIED_AGAIN = Illness(
    "message-retried-again-and-again",
    Severity.warning,
    "Handlers of group {group} fail again and again with the same messages, up to {times} times.",
    "Look at one: tianzhou consume {retry_topic} --from-beginning --max 1; let handlers set aside what they can never "
    "consume.",
)
DEAD_LETTERS = Illness(
    "dead-letters",
    Severity.warning,
    "Group {group} has given up {count} messages; they are in {topic}.",
    "See which: tianzhou dlq list {group}; when their cause is mended, send them again: tianzhou dlq resend {group}",
)
TOPIC_MISSING = Illness(
    "topic-of-group-missing",
    Severity.error,
    "Group {group} subscribes topic {topic}, which does not exist.",
    "Correct the name in the consumer, or make the topic: tianzhou topic create {topic}",
)
TOPIC_NOT_READABLE = Illness(
    "topic-of-group-not-readable",
    Severity.error,
    "Group {group} subscribes topic {topic}, which may not be read on {brokers}.",
    "Give the topic its permission back: tianzhou topic create {topic} --queues {queues} --perm rw",
)

ILLNESSES: Final = (
    UNKNOWN, WITHOUT_MEMBERS, DISABLED, BROADCAST_REFUSED, BROADCASTING, MORE_MEMBERS_THAN_QUEUES,
    QUEUES_WITHOUT_READER, QUEUE_READ_TWICE, SUBSCRIPTIONS_DIFFER, CLIENT_IDS_CLASH, CONSUME_MODES_DIFFER,
    FILTER_DROPS_ALL, FILTER_UNREADABLE, OFFSET_BELOW_MIN, OFFSET_ABOVE_MAX, BEHIND, NEVER_CATCHES_UP,
    ABOUT_TO_BE_LOST, RETRIED_AGAIN, DEAD_LETTERS, TOPIC_MISSING, TOPIC_NOT_READABLE,
)  # fmt: skip


def findings(seen: GroupSeen) -> Iterator[Finding]:
    """Yield the faults of a group."""
    if not seen.configs and not seen.members and not seen.progress:
        yield UNKNOWN.found(seen.subject, group=seen.group)
        return
    yield from _settings(seen)
    if seen.members:
        yield from _agreement(seen)
        yield from _topics(seen)
        if not seen.broadcasting:
            yield from _sharing(seen)
    elif not seen.broadcasting:
        severity = Severity.error if seen.lag else Severity.warning
        yield WITHOUT_MEMBERS.graded(severity).found(seen.subject, {"lag": seen.lag}, group=seen.group, lag=seen.lag)
    if not seen.broadcasting:
        yield from _offsets(seen)
    yield from _failures(seen)


def _settings(seen: GroupSeen) -> Iterator[Finding]:
    if off := [name for name, config in seen.configs.items() if not config.consume_enable]:
        yield DISABLED.found(
            seen.subject, {"consumeEnable": False, "brokers": off}, group=seen.group, brokers=", ".join(off)
        )
    if not seen.broadcasting:
        return
    if refusing := [name for name, config in seen.configs.items() if not config.consume_broadcast_enable]:
        evidence = {"consumeBroadcastEnable": False, "messageModel": "BROADCASTING", "brokers": refusing}
        yield BROADCAST_REFUSED.found(seen.subject, evidence, group=seen.group, brokers=", ".join(refusing))
    else:
        yield BROADCASTING.found(seen.subject, {"messageModel": "BROADCASTING"}, group=seen.group)


def _agreement(seen: GroupSeen) -> Iterator[Finding]:
    if seen.differing:
        yield SUBSCRIPTIONS_DIFFER.found(seen.subject, {"subscriptions": dict(seen.differing)}, group=seen.group)
    for member in seen.members:
        # Compare addresses at one broker only, because a process may use different addresses for different brokers.
        if any(len(set(found)) > 1 for found in member.addresses.values()):
            evidence = {"client_id": member.client_id, "addresses": dict(member.addresses)}
            yield CLIENT_IDS_CLASH.found(seen.subject, evidence, group=seen.group, client_id=member.client_id)
    modes = {member.client_id: mode for member in seen.members if (mode := member.property("PROP_CONSUMEORDERLY"))}
    if len(set(modes.values())) > 1:
        yield CONSUME_MODES_DIFFER.found(seen.subject, {"orderly": modes}, group=seen.group)


def _topics(seen: GroupSeen) -> Iterator[Finding]:
    for topic, subscription in seen.subscriptions.items():
        found = seen.topics.get(topic)
        if topic.startswith(names.RETRY_PREFIX) or found is None:
            continue
        if not found.exists:
            yield TOPIC_MISSING.found(seen.subject, {"topic": topic}, group=seen.group, topic=topic)
            continue
        if unread := [name for name, config in found.configs.items() if not config.readable]:
            evidence = {"topic": topic, "perm": {name: found.configs[name].perm for name in unread}}
            yield TOPIC_NOT_READABLE.found(
                seen.subject, evidence, group=seen.group, topic=topic, brokers=", ".join(unread),
                queues=max(config.read_queue_nums for config in found.configs.values()),
            )  # fmt: skip
        yield from _filtered(seen, subscription, found.newest)


def _filtered(seen: GroupSeen, data: SubscriptionData, newest: Sequence[MessageSeen]) -> Iterator[Finding]:
    words = {"group": seen.group, "topic": data.topic, "expression": data.sub_string}
    try:
        select = selector(data)
    except FilterSyntaxError as error:
        yield FILTER_UNREADABLE.found(seen.subject, {"expression": data.sub_string}, error=str(error), **words)
        return
    selected = any(map(select, newest))
    if len(newest) < FEWEST_SAMPLES or selected:
        return
    evidence = {
        "expression": data.sub_string,
        "expression_type": data.expression_type,
        "tags_seen": dict(Counter(message.tags or "" for message in newest).most_common(SHOWN)),
        "properties_seen": sorted({name for message in newest for name in message.properties})[:20],
    }
    yield FILTER_DROPS_ALL.found(seen.subject, evidence, count=len(newest), **words)


def selector(data: SubscriptionData) -> Callable[[MessageSeen], bool]:
    """Return a function that decides whether a subscription selects a message.

    Raises:
        FilterSyntaxError: the subscription's expression is invalid.
    """
    if data.expression_type != SQL92:
        tags = parse_tags(data.sub_string).tags
        return lambda message: not tags or message.tags in tags
    condition = parse_sql(data.sub_string)

    def select(message: MessageSeen) -> bool:
        try:
            return condition.matches({**message.properties, names.TAGS: message.tags}.get)
        except IncomparableError:
            return False

    return select


def _sharing(seen: GroupSeen) -> Iterator[Finding]:
    by_topic = _by_topic(seen)
    for topic in seen.subscriptions:
        progress = by_topic.get(topic, [])
        if topic.startswith(names.RETRY_PREFIX) or not progress:
            continue
        words = {"group": seen.group, "topic": topic}
        if len(seen.members) > len(progress):
            idle = len(seen.members) - len(progress)
            yield MORE_MEMBERS_THAN_QUEUES.found(
                seen.subject,
                {"queues": len(progress), "members": len(seen.members)},
                queues=len(progress), members=len(seen.members), idle=idle, **words,
            )  # fmt: skip
        if any(member.running is None or member.running.mq_pop_table for member in seen.members):
            continue  # the readers of the queues are unknown
        owners: dict[MessageQueue, list[str]] = {one.queue: [] for one in progress}
        for member in seen.members:
            assert member.running is not None
            for queue, info in member.running.mq_table.items():
                if queue in owners and not info.dropped:
                    owners[queue].append(member.client_id)
        unread = [one for one in progress if not owners[one.queue]]
        if unread:
            lag = sum(one.lag for one in unread)
            yield QUEUES_WITHOUT_READER.graded(Severity.error if lag else Severity.warning).found(
                seen.subject,
                {"queues": [str(one.queue) for one in unread[:SHOWN]], "members": len(seen.members)},
                count=len(unread), lag=lag, **words,
            )  # fmt: skip
        if twice := {str(queue): found for queue, found in owners.items() if len(set(found)) > 1}:
            yield QUEUE_READ_TWICE.found(seen.subject, {"queues": dict(list(twice.items())[:SHOWN])}, **words)


def _by_topic(seen: GroupSeen) -> dict[str, list[ProgressSeen]]:
    result: dict[str, list[ProgressSeen]] = {}
    for one in seen.progress:
        result.setdefault(one.queue.topic, []).append(one)
    return result


def _offsets(seen: GroupSeen) -> Iterator[Finding]:
    for topic, progress in _by_topic(seen).items():
        words = {"group": seen.group, "topic": topic}
        below = [one for one in progress if 0 < one.committed < one.minimum]
        if below:
            lost = sum(one.minimum - one.committed for one in below)
            yield OFFSET_BELOW_MIN.found(seen.subject, _shown(below), lost=lost, **words)
        if above := [one for one in progress if one.committed > one.maximum]:
            yield OFFSET_ABOVE_MAX.found(seen.subject, _shown(above), **words)
        yield from _lag(seen, topic, progress)


def falls_back(put_tps: float, consume_tps: float) -> bool:
    """Whether clearly more messages come in than a group consumes.

    Both rates are averages over intervals that do not begin at the same time, so a group that keeps up may show
    slightly different rates. A difference must also be visible in the printed figures.

    Args:
        put_tps: messages that come in per second.
        consume_tps: messages that the group consumes per second.
    """
    return put_tps - consume_tps > max(put_tps * RATE_TOLERANCE, LEAST_FALL_BACK_TPS)


def _lag(seen: GroupSeen, topic: str, progress: list[ProgressSeen]) -> Iterator[Finding]:
    words = {"group": seen.group, "topic": topic}
    lag, waits = sum(one.lag for one in progress), max((one.waits_ms for one in progress), default=0)
    if not lag or waits < BEHIND_MS:
        return
    found = seen.topics.get(topic)
    put_tps = found.put_tps if found is not None else 0.0
    consume_tps = seen.consume_tps.get(topic, 0.0)
    evidence = {
        "lag": lag,
        "oldest_unread_ms": waits,
        "in_per_second": round(put_tps, 2),
        "consumed_per_second": round(consume_tps, 2),
        "queues": {str(one.queue): one.lag for one in sorted(progress, key=lambda one: -one.lag)[:SHOWN] if one.lag},
    }
    data = seen.subscriptions.get(topic)
    # Filtered messages count as incoming and not as consumed.
    if data is not None and data.sub_string in {"", "*"} and falls_back(put_tps, consume_tps):
        yield NEVER_CATCHES_UP.found(
            seen.subject, evidence, lag=lag, come_in=f"{put_tps:.2f}", consumed=f"{consume_tps:.2f}", **words
        )
    else:
        yield BEHIND.found(seen.subject, evidence, lag=lag, waits=duration(waits), **words)
    for broker, hours in seen.retention_hours.items():
        oldest = max((one.waits_ms for one in progress if one.queue.broker_name == broker), default=0)
        if hours > 0 and oldest >= hours * HOUR_MS * LOSS_SHARE:
            yield ABOUT_TO_BE_LOST.found(
                seen.subject,
                {"oldest_unread_ms": oldest, "fileReservedTime": hours},
                age=duration(oldest), broker=broker, hours=f"{hours:g}", longer=round(hours * 2), **words,
            )  # fmt: skip


def _failures(seen: GroupSeen) -> Iterator[Finding]:
    again = [message for message in seen.retried if message.reconsume_times >= POISON_TIMES]
    if again:
        evidence = {"messages": {one.msg_id: one.reconsume_times for one in again[:SHOWN]}}
        yield RETRIED_AGAIN.found(
            seen.subject,
            evidence,
            group=seen.group,
            times=max(one.reconsume_times for one in again),
            retry_topic=names.retry_topic(seen.group),
        )
    if seen.dead_letters:
        topic = names.dead_letter_topic(seen.group)
        yield DEAD_LETTERS.found(
            seen.subject, {"messages": seen.dead_letters}, group=seen.group, count=seen.dead_letters, topic=topic
        )


def _shown(progress: list[ProgressSeen]) -> dict[str, dict[str, dict[str, int]]]:
    return {
        "queues": {
            str(one.queue): {"first": one.minimum, "next": one.maximum, "committed": one.committed}
            for one in progress[:SHOWN]
        }
    }


def duration(milliseconds: float) -> str:
    """Return a time span in words: `850 ms`, `42 s`, `7 min`, `3.5 h`, `2.1 days`."""
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    for most, unit_s, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < most:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds / 86_400:.3g} days"
