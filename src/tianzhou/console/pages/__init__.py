"""Pages of the console, one file each; importing this package registers them in the order of the menu."""

# The order of the menu:
from tianzhou.console.pages import dashboard, topics, topic, groups, group, audit_log  # isort: skip

__all__ = ["audit_log", "dashboard", "group", "groups", "topic", "topics"]
