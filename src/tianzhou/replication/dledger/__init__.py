"""A node of a DLedger group: what it decides (pure), as Raft has it and as DLedger's nodes understand it."""
