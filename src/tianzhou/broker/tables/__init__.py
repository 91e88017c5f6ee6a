"""Tables of the broker: topics, groups, clients, offsets, filters, locks. No table has a file or a clock."""
