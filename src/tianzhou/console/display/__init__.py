"""Parts of all pages: age of figures, time zone, links in the head."""
