"""``python -m visprism``: the command line."""

import sys

from visprism.cli import main

sys.exit(main())
