"""Entries that reach a run's stream past every rule."""


def forge(backend, fields):
    """Add an entry as another program would; without fields, one with a field that means nothing."""
    parts = [part for pair in (fields or {b"nothing": b""}).items() for part in pair]
    backend.engine.call("XADD", backend._run.keys.unrolls, "*", *parts)


def rejected(backend):
    """Return what is kept of rejected entries, values as bytes."""
    entries = backend.engine.call("XRANGE", backend._run.keys.dead, "(0", "+")
    return [{name.decode(): value for name, value in fields.items()} for _id, fields in entries]
