"""Files of a store: mapped segments, folders, checkpoints, and when they may go."""
