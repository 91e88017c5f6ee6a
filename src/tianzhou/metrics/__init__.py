"""Metrics of a process as metric families, the Prometheus page, and their export over OTLP."""
