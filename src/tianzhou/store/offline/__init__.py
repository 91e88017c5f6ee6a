"""Tools for a store that no broker serves: check, repair, read, import and export."""
