"""`python decode_hostile.py COUNT SEED`: decodes generated payloads under an audit hook and prints what came of it.

A process of its own, because an audit hook stays for good and because a peak of memory is the process'. With
`--unpickle` in place of the count, the hook watches msgpack-numpy's own decoder: what it must notice is there.
"""

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
import tracemalloc
import warnings
from collections import Counter, defaultdict

import msgpack
import msgpack_numpy
import numpy as np
import payload_generator as generator
from watch import Watch, bound_memory, forget_peak, memory_mb

from distrl.errors import RejectedError


def decoded(target, payload):
    """(what came of it, the value): the value's name, the reason of the ledger, or an exception that must not be."""
    try:
        return "valid", target.decode(payload)
    except RejectedError as error:
        return error.reason, None
    except BaseException as error:  # whatever it is, it is what this looks for
        return f"crash: {type(error).__name__}: {error}"[:300], None


def arrays_of(value):
    """Every (name, array or number) in a decoded unroll or gradient."""
    for name in value.__slots__ if hasattr(value, "__slots__") else value._fields:
        child = getattr(value, name)
        if isinstance(child, dict):
            yield from _named(child)
        elif hasattr(child, "_fields") and name != "header":
            yield from arrays_of(child)
        elif child is not None and name != "header":
            yield name, child


def _named(group):
    for name, child in group.items():
        yield from _named(child) if isinstance(child, dict) else [(name, child)]


def passes(value, forms):
    """Whether the value is like the genuine ones in all that training relies on, told without the codec's checks."""
    found = dict(arrays_of(value))
    if found.keys() - {"loss", "entropy"} != forms.keys() - {"loss", "entropy"}:
        return False
    for name, array in found.items():
        if isinstance(array, float):
            if not np.isfinite(array):
                return False
            continue
        dtype, shape = forms[name]
        free = name.startswith("episode_")
        if array.dtype != dtype or array.ndim != len(shape) or (array.shape != shape and not free):
            return False
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return False
        if array.dtype.kind == "b" and not np.isin(array.view(np.uint8), (0, 1)).all():
            return False
    choices = {"gear": 4, "some": np.array([2, 3]), "switches": 2}
    return all((found[name] >= 0).all() and (found[name] < n).all() for name, n in choices.items() if name in found)


def forms_of(target):
    value = target.decode(target.genuine[-1])
    return {name: (a.dtype, a.shape) for name, a in arrays_of(value) if not isinstance(a, float)}


def watch_the_library(watch):
    """msgpack-numpy's decoder over the same payloads, each as far as it gets."""
    for pickled in generator.PICKLED:
        with watch.armed(), contextlib.suppress(Exception):
            msgpack.unpackb(msgpack.packb(pickled), object_hook=msgpack_numpy.decode, strict_map_key=False)
    return {"noticed": watch.noticed, "sprung": os.environ.get(generator.TRAP)}


def settled_mb():
    """Return the memory of the process without the allocator's free lists."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return memory_mb("VmRSS")


def decode_all(watch, count, seed):
    targets = generator.targets()
    forms = {name: forms_of(target) for name, target in targets.items()}  # and whatever is imported late, is
    for hostile in generator.payloads(2 * len(generator.FAMILIES), seed + 1):
        decoded(targets[hostile.target], hostile.payload)
    outcomes, slowest, took, crashes, passed, longest = defaultdict(Counter), {}, [], [], [], 0
    at_start_mb, most_mb, most_of_process_mb = settled_mb(), 0.0, 0.0
    for index, hostile in enumerate(generator.payloads(count, seed)):
        longest = max(longest, len(hostile.payload))
        target = targets[hostile.target]
        before_mb = memory_mb("VmRSS")  # what it took to make the payload is not the decoder's
        forget_peak()
        began = time.perf_counter()
        with watch.armed():
            outcome, value = decoded(target, hostile.payload)
        took.append(time.perf_counter() - began)
        peak_mb = memory_mb("VmHWM")
        most_mb, most_of_process_mb = max(most_mb, peak_mb - before_mb), max(most_of_process_mb, peak_mb - at_start_mb)
        slowest[hostile.family] = max(slowest.get(hostile.family, 0.0), took[-1])
        outcomes[hostile.family][outcome.split(":")[0]] += 1
        if outcome.startswith("crash"):
            crashes.append(f"{hostile.family}, payload {index}: {outcome}")
        elif value is not None and not passes(value, forms[hostile.target]):
            passed.append(f"{hostile.family}, payload {index}")
    kept_mb = settled_mb() - at_start_mb
    traced, most_traced = 0, 0
    for hostile in generator.payloads(count, seed, every=count // 50 | 1):
        tracemalloc.start()
        decoded(targets[hostile.target], hostile.payload)
        most_traced = max(most_traced, tracemalloc.get_traced_memory()[1] - 8 * len(hostile.payload))
        tracemalloc.stop()
        traced += 1
    return {
        "outcomes": outcomes,
        "crashes": crashes,
        "passed": passed,
        "noticed": watch.noticed,
        "sprung": os.environ.get(generator.TRAP),
        "peak_growth_mb": most_mb,
        "process_growth_mb": most_of_process_mb,
        "kept_mb": kept_mb,
        "traced": traced,
        "most_traced_mb": most_traced / 2**20,
        "longest_bytes": longest,
        "slowest_ms": {family: 1000 * seconds for family, seconds in slowest.items()},
        "median_us": 1e6 * float(np.median(took)),
        "over_50_ms": sum(seconds > 0.05 for seconds in took),
    }


def decode_one_of(size):
    """One payload of so many bytes, all of them an array's, so that only its size is wrong."""
    target = generator.targets()["unroll"]
    decoded(target, target.genuine[0])
    head = b"\x81\xa7rewards\x85\xc4\x02nd\xc3\xc4\x04type\xa3|u1\xc4\x04kind\xc4\x00\xc4\x05shape\x91\xce"
    payload = bytearray(size)
    front = head + (size - len(head) - 15).to_bytes(4, "big") + b"\xc4\x04data\xc6"
    front += (size - len(front) - 4).to_bytes(4, "big")
    payload[: len(front)] = front
    payload = bytes(payload)
    resident_mb = memory_mb("VmRSS")
    forget_peak()
    began = time.perf_counter()
    outcome, _ = decoded(target, payload)
    seconds = time.perf_counter() - began
    return {"outcome": outcome, "ms": 1000 * seconds, "peak_growth_mb": memory_mb("VmHWM") - resident_mb}


def main():
    warnings.simplefilter("ignore")
    watch = Watch()
    bound_memory()
    if sys.argv[1] == "--unpickle":
        told = watch_the_library(watch)
    elif sys.argv[1] == "--one-of":
        told = decode_one_of(int(sys.argv[2]))
    else:
        told = decode_all(watch, int(sys.argv[1]), int(sys.argv[2]))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
