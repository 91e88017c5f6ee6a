"""The key index, which maps message keys to log offsets."""
