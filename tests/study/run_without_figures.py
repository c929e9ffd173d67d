"""``python -m visprism`` without figures and report, which take longer than the analyses."""

import sys

from visprism.cli import main
from visprism.study import files

if __name__ == "__main__":
    files.write_files = lambda *_, **__: None
    sys.exit(main())
