"""Tables of the broker: topics, groups, clients, offsets, filters, locks. Plain values, without a file or a clock."""
