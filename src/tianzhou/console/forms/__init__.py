"""Forms that create and change topics and groups: values and their checks (pure), and the dialogs."""
