"""A log whose records are in entries: the files of a DLedger group's member (broker.md §19.5)."""
