"""The decisions of a DLedger group's node (pure): Raft's rules in the protocol of DLedger's nodes."""
