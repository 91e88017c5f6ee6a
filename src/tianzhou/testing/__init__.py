"""For tests: virtual clocks, an embedded cluster."""
