"""Connections that carry commands: a sans-IO session, a server, a client."""
