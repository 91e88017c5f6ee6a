"""Producers: what becomes of a message between `send` and the broker."""
