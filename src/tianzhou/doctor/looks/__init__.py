"""Looks: what is read from servers, by `Admin`, and from this machine; partly if some of it does not answer."""
