"""`python -m tianzhou`."""

import sys

try:
    from tianzhou.cli.main import main

    main()
except KeyboardInterrupt:
    # Ctrl-C while the first module is imported: main() ends with the same code when it is pressed later.
    sys.exit(130)
