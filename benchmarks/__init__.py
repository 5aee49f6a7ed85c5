"""What distrl learns, and under which conditions, measured; from a checkout: `python -m benchmarks.learning`."""
