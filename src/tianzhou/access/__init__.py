"""Access control: who asks, what a request needs, and whether the rules allow it (broker.md §22). Pure."""
