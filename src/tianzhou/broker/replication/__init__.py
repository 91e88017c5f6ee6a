"""A broker's part in its group: what a slave takes over from its master beside the log (broker.md §17)."""
