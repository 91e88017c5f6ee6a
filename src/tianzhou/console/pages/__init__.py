"""Pages of the console, one file each. Importing this package registers them in the order of the menu."""

# The order of the menu:
from tianzhou.console.pages import (  # isort: skip
    dashboard, topics, topic, groups, group,
    messages, message, dead_letters, trace, transactions, delay, waiting, sql,
    producers, cluster, broker, limits, ops, access, doctor, proof,
    audit_log, time_zone,
)  # fmt: skip

__all__ = [
    "access", "audit_log", "broker", "cluster", "dashboard", "dead_letters", "delay", "doctor", "group", "groups",
    "limits", "message", "messages", "ops", "producers", "proof", "sql", "time_zone", "topic", "topics", "trace",
    "transactions", "waiting",
]  # fmt: skip
