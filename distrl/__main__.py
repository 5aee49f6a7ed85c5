"""`python -m distrl` is `distrl`."""

import sys

from distrl.cli import main

sys.exit(main())
