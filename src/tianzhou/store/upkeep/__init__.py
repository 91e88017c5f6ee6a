"""Background work of a running store: synced notes, deletion of old files, repair of damage."""
