"""Request handlers, one module per family: each maps request codes to its methods."""
