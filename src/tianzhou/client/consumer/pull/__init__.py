"""The pull consumer: its caller asks for messages."""
