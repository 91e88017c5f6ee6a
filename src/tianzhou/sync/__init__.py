"""The blocking face of the client and of admin."""
