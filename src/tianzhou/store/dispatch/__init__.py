"""Dispatch from the commit log to the queues and the index."""
