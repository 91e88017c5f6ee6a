"""`python -m tianzhou`."""

from tianzhou.cli.main import main

main()
