"""Which messages a subscription selects. Pure."""
