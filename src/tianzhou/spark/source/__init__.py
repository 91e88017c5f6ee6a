"""Topics read as batch and streaming tables: offsets, plans, pulls."""
