"""Names of topics and groups inside a namespace, as requests and replies carry them."""
