"""Registration of a broker at its name servers."""
