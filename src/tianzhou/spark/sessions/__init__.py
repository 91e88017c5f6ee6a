"""Spark sessions: the Java runtime, the workers and the settings."""
