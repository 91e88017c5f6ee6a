"""Commit log replication: the pure decisions of masters and slaves, and the HA port (broker.md §17)."""
