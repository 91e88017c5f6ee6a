"""Commands for running clusters and brokers."""
