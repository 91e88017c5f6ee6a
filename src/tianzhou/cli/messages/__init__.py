"""Messages by id, key, time and place; what groups have made of them: offsets and dead letters."""
