"""`python -m benchmarks.behaviour`."""

from benchmarks.behaviour.run import main

raise SystemExit(main())
