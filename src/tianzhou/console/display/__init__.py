"""Parts that all pages show: age of figures, time zone, links of the head."""
