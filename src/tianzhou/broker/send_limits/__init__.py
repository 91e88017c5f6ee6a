"""Limits of senders: messages and bytes a second of a topic, producer group or client (docs/adr/0031)."""
