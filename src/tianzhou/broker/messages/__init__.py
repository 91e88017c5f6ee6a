"""Processing of single messages: admission, acknowledgement, retry, filters of pulls, long polls."""
