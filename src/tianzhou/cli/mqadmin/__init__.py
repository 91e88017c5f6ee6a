"""Apache's mqadmin by its own names: sub-commands, flags and output columns (client.md §23); one file per family."""
