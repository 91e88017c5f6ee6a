"""Spark sessions: which Java, which workers, where they run."""
