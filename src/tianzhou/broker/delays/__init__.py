"""Delayed messages: which are due, and their delivery."""
