"""Child processes of `tianzhou serve`: for `--brokers N` (docs/howto/several-brokers.md) and for `--console`."""
