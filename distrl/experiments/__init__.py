"""Several runs that belong together: sweeps over settings and seeds."""
