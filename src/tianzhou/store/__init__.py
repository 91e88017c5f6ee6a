"""What is on disk: commit log, consume queues, index, checkpoint, configuration files."""
