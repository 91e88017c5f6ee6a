"""Binlogs of MySQL and MariaDB: column types, events, statements, the connection that reads them."""
