"""`tianzhou drain`: have producers leave a broker, and say when nobody waits for anything that is on it."""
