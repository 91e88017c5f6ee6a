"""The few functions that carry the cost of a message."""
