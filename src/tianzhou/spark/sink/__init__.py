"""Rows written to topics, at least once or exactly once."""
