"""Traces of messages: RocketMQ's own trace topic, and OpenTelemetry spans."""
