"""Proxies between clients and servers: SOCKS, and the PROXY protocol of load balancers."""
