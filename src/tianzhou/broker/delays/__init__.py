"""Delayed messages: due times and delivery."""
