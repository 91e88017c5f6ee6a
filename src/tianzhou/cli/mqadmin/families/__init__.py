"""The sub-commands: options, work and output of each, in one file per family (client.md §23)."""
