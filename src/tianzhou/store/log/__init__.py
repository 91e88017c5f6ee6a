"""The commit log: every message, in the order of its arrival."""
