"""Batches staged for exactly-once writers, until they are committed or aborted as one."""
