"""The cluster as a client sees it: routes, heartbeats, connections, requests of brokers."""
