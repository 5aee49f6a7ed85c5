"""What a training and `distrl status` show in a terminal: a live panel or plain lines, and tables.

The launch and the command line use it. It gets snapshots and lists of runs and turns them into text. It decides
nothing, and computes no figure that a run's files do not have.
"""
