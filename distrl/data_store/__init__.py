"""Checkpoints in a directory and in a data store: writing, checking, naming, fetching.

The learner saves with it, the launch fetches what a resumption needs, and `runs/` lists what there is. Whatever is
written becomes visible by one atomic step, and whatever is read is checked against its manifest. Nothing here is
pickled, and only `remote_objects.py` knows fsspec.
"""
