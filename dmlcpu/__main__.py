"""``python -m dmlcpu`` is the ``dmlcpu`` command."""

import sys

from dmlcpu.cli import main

if __name__ == "__main__":
    sys.exit(main())
