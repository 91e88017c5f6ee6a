"""The push consumer: handlers are called with what its queues hold."""
