"""Gates of a server: which peers and accounts get through to its handlers."""
