"""Commands for messages (by id, key, time and position), for offsets of groups, and for dead letters."""
