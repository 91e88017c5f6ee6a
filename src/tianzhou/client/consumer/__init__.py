"""Consumers: which queues are whose, where each queue is, how messages are pulled."""
