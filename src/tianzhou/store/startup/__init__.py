"""The start of a store: its files are loaded, its end is found, queues and index are made whole."""
