"""Previews of changes, the questions before changes, and the undo of changes."""
