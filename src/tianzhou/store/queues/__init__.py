"""Consume queues: from a queue offset to the place in the log, one unit a message or one a batch."""
