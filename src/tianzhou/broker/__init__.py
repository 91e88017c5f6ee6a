"""The broker: tables, ledgers, request handlers, and the server that puts them together."""
