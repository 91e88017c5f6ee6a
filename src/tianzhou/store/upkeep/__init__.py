"""What a running store does beside serving: syncing notes, cleaning, checking what is doubted."""
