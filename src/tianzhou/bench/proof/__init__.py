"""A proof that a cluster has lost no message: acknowledged = stored on a majority = consumed, by unique key."""
