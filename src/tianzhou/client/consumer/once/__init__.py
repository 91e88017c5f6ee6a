"""Handlers whose work and message id are committed in one transaction of a database (docs/adr/0030)."""
