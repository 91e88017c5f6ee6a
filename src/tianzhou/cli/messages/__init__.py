"""Looking at messages: by id, key, time and place."""
