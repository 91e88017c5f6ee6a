"""Figures of a process as metric families, the page that shows them to Prometheus, and their export over OTLP."""
