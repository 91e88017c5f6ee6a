"""Translation of topic and group names between the users of a namespace and the servers."""
