"""Common parts of the commands that run servers: logs, settings and the service manager."""
