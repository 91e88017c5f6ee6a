"""The proof that a cluster has lost nothing: acknowledged = stored on a majority = consumed, by unique key."""
