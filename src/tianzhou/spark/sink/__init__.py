"""Rows written to topics, exactly once where that is asked for."""
