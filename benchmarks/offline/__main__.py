"""`python -m benchmarks.offline`."""

from benchmarks.offline.run import main

raise SystemExit(main())
