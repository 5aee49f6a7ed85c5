"""What is measured of a run, where it is written, and what a terminal shows of it."""
