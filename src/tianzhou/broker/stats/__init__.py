"""What a broker counts: messages, bytes, latencies, connections."""
