"""Who belongs to the group of a node: its identity, the content of logs, members outside of the list."""
