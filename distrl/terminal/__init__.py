"""Views of a run in a terminal: a live panel or plain lines, and the tables of `distrl status` and of lists.

The launch and the command line use it. It gets snapshots and lists of runs and turns them into text. It decides
nothing, and computes no figure that a run's files do not have.
"""
