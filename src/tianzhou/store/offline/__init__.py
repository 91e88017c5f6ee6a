"""A store that no broker serves: checking, repairing, reading, import and export."""
