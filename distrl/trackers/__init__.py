"""Trackers: the numbers of a run, in other places than its directory."""
