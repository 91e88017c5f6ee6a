"""Clusters and brokers that run, as a whole and one by one."""
