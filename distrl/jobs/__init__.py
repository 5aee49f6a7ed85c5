"""Jobs: runs that were submitted to a target, and the verbs that work on each of them."""
