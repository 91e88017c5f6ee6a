"""Codecs: bytes to values and back, for frames, headers, records and bodies. Pure."""
