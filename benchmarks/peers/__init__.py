"""Other learners side by side with distrl on one machine, in one run: `python -m benchmarks.peers --help`."""
