"""Pages of the console, one file each; importing this package registers them in the order of the menu."""

# The order of the menu:
from tianzhou.console.pages import (  # isort: skip
    dashboard, topics, topic, groups, group,
    messages, message, dead_letters, trace, transactions, delay, sql,
    audit_log,
)  # fmt: skip

__all__ = [
    "audit_log", "dashboard", "dead_letters", "delay", "group", "groups", "message", "messages", "sql", "topic",
    "topics", "trace", "transactions",
]  # fmt: skip
