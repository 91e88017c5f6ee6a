"""What the commands that stay share: their logs, and what they say to a service manager."""
