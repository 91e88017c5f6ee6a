"""Bytes to values and back: frames, headers, records, bodies. Pure."""
