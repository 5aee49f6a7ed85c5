"""Entries that reach a run's stream past every rule, and counts that its ledger gets without entries."""


def forge(backend, fields):
    """Add an entry as another program would; without fields, one with a field that means nothing."""
    parts = [part for pair in (fields or {b"nothing": b""}).items() for part in pair]
    backend.engine.call("XADD", backend._run.keys.unrolls, "*", *parts)


def add_to_ledger(backend, counts):
    """Add to the ledger's fields as actors and learner would with entries."""
    for name, increment in counts.items():
        backend.engine.call("HINCRBY", backend._run.keys.ledger, name, increment)


def rejected(backend):
    """Return what is kept of rejected entries, values as bytes."""
    entries = backend.engine.call("XRANGE", backend._run.keys.dead, "(0", "+")
    return [{name.decode(): value for name, value in fields.items()} for _id, fields in entries]
