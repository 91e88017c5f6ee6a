"""Producers: all layers between `send` and the broker."""
