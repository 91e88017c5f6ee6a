"""Processes under `tianzhou serve`: those of `--brokers N` (docs/howto/several-brokers.md) and of `--console`."""
