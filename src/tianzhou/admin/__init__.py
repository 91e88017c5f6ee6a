"""What operators do to topics, groups, offsets and clusters."""
