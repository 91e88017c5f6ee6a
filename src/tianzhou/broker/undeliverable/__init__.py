"""Undeliverable messages: set aside after a few tries, so that the messages behind them are delivered."""
