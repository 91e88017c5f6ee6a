"""JSON bodies and their values (wire.md §7 to §10): one module per subject, one codec per body."""
