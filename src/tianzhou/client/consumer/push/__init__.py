"""The push consumer: handlers are called with the messages of its queues."""
