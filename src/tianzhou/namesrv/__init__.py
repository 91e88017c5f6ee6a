"""The name server, which maps topics to the queues of brokers."""
