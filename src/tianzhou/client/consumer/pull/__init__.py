"""The pull consumer: its caller requests the messages."""
