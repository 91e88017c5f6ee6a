"""A broker's part in its group: roles, and the copying of tables in addition to the log (broker.md §17)."""
