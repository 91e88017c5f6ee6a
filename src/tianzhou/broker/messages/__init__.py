"""What happens to single messages: admission, acknowledgement, retry, filters of pulls, long polls."""
