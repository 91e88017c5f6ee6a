"""`plan`: the numbers of brokers and consumers that a load needs."""
