"""`tianzhou store`: commands on the files of a store."""
