"""JSON bodies and the values they stand for (wire.md §7 to §10): one module a noun, one codec a body."""
