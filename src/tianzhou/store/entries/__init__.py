"""A log whose records stand in entries: what a member of a DLedger group has on its disk (broker.md §19.5)."""
