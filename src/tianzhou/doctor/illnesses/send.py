"""Faults of a send other than those of its topic and brokers: the message itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tianzhou.doctor.findings import Finding, Illness, Severity
from tianzhou.doctor.observations import ClusterSeen

MOST_BYTES: Final = 4 * 1024 * 1024
"""Default of RocketMQ's `maxMessageSize`, in bytes."""

TOO_LARGE = Illness(
    "message-too-large",
    Severity.error,
    "A message of {size} bytes is larger than {broker} takes ({most} bytes, maxMessageSize).",
    "Send less, or a reference to where the body is; or raise maxMessageSize at the broker and max_message_size of "
    "the producer.",
)
NO_TRANSACTIONS = Illness(
    "transactions-rejected",
    Severity.note,
    "{broker} refuses messages of transactions (rejectTransactionMessage=true).",
    "Set rejectTransactionMessage=false in its configuration if producers need transactions.",
)
NOTHING_TAKES = Illness(
    "no-broker-takes-messages",
    Severity.error,
    "No broker answers that takes messages.",
    "See what is wrong with each: tianzhou doctor broker",
)

ILLNESSES: Final = (TOO_LARGE, NO_TRANSACTIONS, NOTHING_TAKES)


def findings(seen: ClusterSeen, size: int | None) -> Iterator[Finding]:
    """Yield the reasons why brokers would refuse a message, whatever its topic.

    Args:
        seen: the cluster.
        size: size of its body in bytes; None when it is unknown.
    """
    masters = list(seen.masters)
    if not masters:
        yield NOTHING_TAKES.found("cluster", {"brokers": [one.status.address for one in seen.brokers]})
    for broker in masters:
        most = int(broker.number("maxMessageSize", MOST_BYTES))
        if size is not None and size > most:
            evidence = {"size": size, "maxMessageSize": most}
            yield TOO_LARGE.found(broker.subject, evidence, size=size, broker=broker.subject, most=most)
        if broker.setting("rejectTransactionMessage") == "true":
            yield NO_TRANSACTIONS.found(broker.subject, {"rejectTransactionMessage": True}, broker=broker.subject)
