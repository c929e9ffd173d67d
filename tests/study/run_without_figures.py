"""``python -m visprism`` without figures and report, which take longer than the analyses."""

import sys

from visprism.cli import main
from visprism.study import files

files.write_files = lambda *_, **__: None

if __name__ == "__main__":
    sys.exit(main())
