"""Transactions: half messages, their decisions, and the check-back of producers that say nothing."""
