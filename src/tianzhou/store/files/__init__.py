"""Files of a store: mapped segments, folders, checkpoints, and rules of their deletion."""
