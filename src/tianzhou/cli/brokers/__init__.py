"""Several broker processes under one command: `tianzhou serve --brokers N` (docs/howto/several-brokers.md)."""
