"""From records to rows: the schema and the columns of a message."""
