"""Users and policies of a server: their file, and the requests that manage them."""
