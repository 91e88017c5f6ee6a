"""Statistics of a broker: messages, bytes, latencies, connections."""
