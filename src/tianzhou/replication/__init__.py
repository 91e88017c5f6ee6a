"""Copies of a commit log at other brokers: what masters and slaves decide (pure), and the HA port (broker.md §17)."""
