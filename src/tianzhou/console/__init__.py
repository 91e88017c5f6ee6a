"""The web console: a cluster watched and operated from a browser, through `tianzhou.admin` alone (docs/adr/0018)."""
