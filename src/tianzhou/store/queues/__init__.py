"""Consume queues, which map queue offsets to log offsets, with one unit a message or one a batch."""
