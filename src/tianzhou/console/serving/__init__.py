"""Checks between the web server and the pages: unknown paths, sessions of web sockets, open pages, slow content."""
