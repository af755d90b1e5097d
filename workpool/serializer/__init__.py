"""Objects to bytes and back: values, functions, calls and outcomes; no MPI.

The record at each hop, and the function on either side of it::

    driver                                                worker
    code = CodeCache.lookup(fn)     -- Code, once -->     CallableCache.add(code_id, data)
    pack_call(fn, args, kwargs,     -- Encoded ----->     fn, args, kwargs = unpack_call(buffer)
              code)                                       (fn is None: CallableCache.get(code_id))
    value, error =                  <-- Encoded -----     pack_value(value, task)
        unpack_outcome(kind, ...)   <-- bytes -------     pack_exception(error, task=..., ...)

From what the rest of workpool calls down to what all the others stand on::

    code_cache    the driver's functions whose code crosses once
    callables     what a worker restores from these codes
    outcomes      values and exceptions on their way home
    blocks        the items of a map
    frozen        results that the next call may change
    prepared      globals that an initializer sets
    fingerprint   what a call is, in the next run as well
    calls         a task's call as one payload
    code          what a function's code is on its way
    values        any object as frames
    references    objects without the definitions in them, which the other side has
    byvalue       definitions that a worker cannot import
    rebuilt       what pickle knows only by its name, and can be made again
    arrays        arrays of numbers, faster
    classes       classes of the script, and how they are known when they come home
    reach         what two pickles of one task must not have twice
    snapshot      whether what a definition reads is still the same
    states        whether an object is, by its bytes
    foreign       what the script has of ctypes
    annotations   of functions and classes
    empty         classes before they are filled
    enumerations  those of the script
    byname        what goes by its name
    names         what a function names, and what that is
    atoms         values that nothing can change
    script        ``__main__`` in a process that does not run the script
    instances     what an object consists of
    wording       what messages say

Four rules:

1. An encoding is plain bytes when it is small, else a `Packed`; both answer ``len``.
2. Plain pickle comes first. cloudpickle takes what pickle cannot, and whatever pickle would send
   as a name in ``__main__``, because ``__main__`` is another module on a worker.
3. What a process unpickles belongs to it: arrays are writable views of the received memory.
4. Whatever cannot travel raises `SerializationError`, which names the thing and the remedy.
   Whatever the user's objects raise meanwhile becomes one. Nothing else leaves this package but
   `KeyboardInterrupt`, `MemoryError`, what a signal's handler raises, and what a docstring lists
   under Raises.

References: PEP 574 (pickle protocol 5 with out-of-band buffers); cloudpickle's class tracking;
``_ExceptionWithTraceback`` of ``concurrent.futures.process``.
"""

from __future__ import annotations

from .atoms import ATOMS
from .blocks import BLOCK, Blocks, encode_blocks
from .callables import CallableCache, load_callable
from .calls import heaviest, pack_call, unpack_call, without_partial
from .classes import from_earlier_run
from .code import Code
from .code_cache import CodeCache
from .fingerprint import FINGERPRINT_NBYTES, call_fingerprint, fingerprint, item_fingerprints
from .frozen import Frozen, frozen
from .outcomes import APART, CONTRIBUTES, Kind, pack_exception, pack_value, unpack_outcome
from .prepared import Prepared, collect_globals, prepared_by, use_prepared
from .reach import Torn
from .references import Refer, UnknownDefinition
from .script import clear_script, leave_script, stay_in_script
from .values import ALIGNMENT, Encoded, Packed, as_bytes, join, split, unpack
from .wording import task_name

__all__ = [
    "ALIGNMENT",
    "APART",
    "ATOMS",
    "BLOCK",
    "CONTRIBUTES",
    "FINGERPRINT_NBYTES",
    "Blocks",
    "CallableCache",
    "Code",
    "CodeCache",
    "Encoded",
    "Frozen",
    "Kind",
    "Packed",
    "Prepared",
    "Refer",
    "Torn",
    "UnknownDefinition",
    "as_bytes",
    "call_fingerprint",
    "clear_script",
    "collect_globals",
    "encode_blocks",
    "fingerprint",
    "from_earlier_run",
    "frozen",
    "heaviest",
    "item_fingerprints",
    "join",
    "leave_script",
    "load_callable",
    "pack_call",
    "pack_exception",
    "pack_value",
    "prepared_by",
    "split",
    "stay_in_script",
    "task_name",
    "unpack",
    "unpack_call",
    "unpack_outcome",
    "use_prepared",
    "without_partial",
]
