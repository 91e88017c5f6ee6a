"""Consumers: the assignment of queues to members, offsets of queues, and pulls."""
