"""A client's view of the cluster: routes, heartbeats, connections, requests of brokers."""
