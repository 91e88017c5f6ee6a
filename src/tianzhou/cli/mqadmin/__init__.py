"""Apache's mqadmin with its own sub-commands, flags and output columns (client.md §23). Each family has a file."""
