"""The start of a store: it loads the files, finds the log's end, and completes queues and index."""
