"""The key index: from a message key to offsets of the log."""
