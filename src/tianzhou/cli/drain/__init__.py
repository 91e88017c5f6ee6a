"""`tianzhou drain`: move producers away from a broker, and report when it is safe to stop."""
