"""Undeliverable messages: set aside after a few attempts, so that later messages are delivered."""
