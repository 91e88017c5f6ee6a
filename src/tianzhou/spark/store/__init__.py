"""A store's files as a Spark table, without a broker."""
