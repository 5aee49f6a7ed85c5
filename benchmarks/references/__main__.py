"""`python -m benchmarks.references`."""

from benchmarks.references.run import main

raise SystemExit(main())
