"""Transactions: half messages, their decisions, and checks at producers that have not decided."""
