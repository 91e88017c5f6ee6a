"""The sub-commands, one file a family: what each takes, what it does, what it prints (client.md §23)."""
