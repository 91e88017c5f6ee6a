"""`python -m tianzhou`."""

import sys

try:
    from tianzhou.cli.main import main

    main()
except KeyboardInterrupt:
    # Ctrl-C during the import of the first module. main() exits with the same code for a later Ctrl-C.
    sys.exit(130)
