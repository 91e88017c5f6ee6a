"""The records of the commit log: their layout, one record to bytes and back, and the walk over many (store.md §3)."""
