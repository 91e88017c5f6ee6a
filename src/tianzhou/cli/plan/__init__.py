"""`plan`: how many brokers and consumers a load needs."""
