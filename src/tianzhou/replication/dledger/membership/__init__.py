"""Membership of a node's group: its identity, the comparison of logs, and members outside of the list."""
