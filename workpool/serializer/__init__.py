"""Objects to bytes and back: values, functions, calls and outcomes; no MPI.

A worker imports modules as the driver does, but it does not run the script: its ``__main__`` is
another one.  So what counts is what an object has of the script's *definitions*, its functions and
classes.  There are three ways to pickle it, tried in this order (`values.encode`)::

    by name         plain pickle: there are no definitions of the script in it
    by reference    plain pickle, and a few bytes for each definition, which the other side has
    by value        cloudpickle, and for functions our own: each definition is sent whole, with
                    all that it reads

What crosses, and the function on either side of it::

    driver                                                worker
    code = CodeCache.lookup(fn)     -- Code, once -->     CallableCache.add(code_id, data)
    pack_call(fn, args, kwargs,     -- Encoded ----->     fn, args, kwargs = unpack_call(buffer)
              code)                                       (fn is None: CallableCache.get(code_id))
    value, error =                  <-- Encoded -----     pack_value(value, task)
        unpack_outcome(kind, ...)   <-- bytes -------     pack_exception(error, task=..., ...)

* A **Code** is the pickle of a function that tasks call, by name or by value.  It crosses once to
  each worker; then a call is the pickle of its arguments alone.  They refer to the classes that
  came along with the Code, and to its **companions**: definitions that it brings because they were
  met among arguments before.
* A **Snapshot** tells whether a Code still stands for its function.  Of what that reads, and all
  that can be reached from there, it keeps what each name, attribute and element is bound to; an
  array, a long list and most objects of modules are **known by their bytes**, those of a pickle.
  A function that reads what can be known in neither way has no Code: it goes whole with each call.
  The worker, too, takes a snapshot of what it restores, and restores it anew for the next task
  once one has changed something.
* A Code and the arguments are two pickles: what is in both, such as a list that the function reads,
  would be two lists on the worker.  Such a call is **torn**, and goes as one pickle instead, as far
  as that can be found out in little time, see `reach`.
* What a pool's initializer sets among the script's globals is **prepared**: each function that a
  worker restores later on finds it among its own.
* The items of a map are pickled in **blocks** of up to 256.  Of the results, what a later call
  of the function could change, because somebody holds it, is **frozen** when its own call returns.
* A result refers to the classes that the script has, which nothing that comes home writes to.
  Functions, and classes that the script has under no name, come home by value.
* A journal knows a call by its **fingerprint**, which is the same in the next run of the script: no
  pickle is.

Why not cloudpickle alone?  It sends a function whole with each task, and a class with each object,
which takes up to a hundred times as long as the rest.  What comes home would write to the script's
classes.  And of what a script has, which a worker that imported it would have made for itself, it
restores much not at all or not as it was: locks, caches, enumerations, ctypes.

To read first: `values`, then `calls` and `outcomes`; of what makes it fast, `code_cache` and
`snapshot`; for a kind of object that does not arrive as it was, `ByValuePickler.reducer_override`,
which asks for each kind in turn.  From the top down (``pyproject.toml`` says who may import whom)::

    called by the rest of workpool
      calls         a task's call as one payload; blame: what of it cannot be pickled
      outcomes      values and exceptions on their way home
      code_cache    the driver's functions whose code crosses once
      callables     what a worker restores from these codes
      blocks        the items of a map; common: what these and its function share; repeats: what
                    many of them are given
      frozen        results that the next call may change
      prepared      globals that an initializer sets
      fingerprint   what a call is, in the next run as well; definitions: those of the script
    how objects are pickled
      values        any object as an encoding, by one of the three ways
      arrays        by name: numbers, faster; tensors: those of PyTorch, which are such arrays
      references    by reference; and the Code that is referred to
      byvalue       by value; functions: how those are made again
    by value, in detail
      rebuilt       what pickle knows only by its name, and can be made again
      classes       classes of the script, and how they are known when they come home
      empty         classes before they are filled
      enumerations  those of the script
      generic       functions of `functools.singledispatch`; exceptions: those that tasks raise
      foreign       what the script has of ctypes
    whether what was sent is still the same, or there twice
      reach         what two pickles of one task must not have twice
      snapshot      what a definition reads, found
      bindings      the same recorded, and whether it holds
      states        whether an object is still the same, by its bytes
    what is known of things
      script        ``__main__`` in a process that does not run the script
      byname        what goes by its name
      names         what a function names, and what that is
      instances     what an object consists of
      derived       what of a class follows from its body
      atoms         values that nothing can change
      drawing       what random and numpy.random draw from
      pipes         what cannot be copied, though pickle would
    frames          an encoding: a pickle, and the large buffers it refers to
    wording         what messages say

Three rules:

1. An encoding is plain bytes when it is small, else a `Packed`; both answer ``len``.
2. What a process unpickles belongs to it: arrays are writable views of the received memory.
3. Whatever cannot travel raises `SerializationError`, which names the thing and the remedy.
   Whatever the user's objects raise meanwhile becomes one. Nothing else leaves this package but
   `KeyboardInterrupt`, `MemoryError`, what a signal's handler raises, and what a docstring lists
   under Raises.

References: PEP 574 (pickle protocol 5 with out-of-band buffers); cloudpickle's class tracking;
``_ExceptionWithTraceback`` of ``concurrent.futures.process``.

Here is what driver and worker need.  What one half needs alone is imported from its own module,
`code_cache` by the driver, for whatever a worker imports before its first task, all workers of a
host do at once.  So nothing here imports cloudpickle either, unless it has a use for it.
"""

from __future__ import annotations

from .atoms import ATOMS
from .blocks import BLOCK, BLOCK_NBYTES, Blocks, encode_blocks
from .callables import CallableCache
from .calls import pack_call, unpack_call, without_partial
from .drawing import is_own_generator
from .frames import (
    Encoded,
    Packed,
    as_bytes,
    compact,
    join,
    join_all,
    join_apart,
    segments,
    split,
    unpack,
)
from .frozen import Frozen, frozen
from .functions import Prepared, collect_globals, use_prepared
from .names import innermost, reads
from .outcomes import APART, CONTRIBUTES, Kind, pack_exception, pack_value, unpack_outcome
from .reach import Torn
from .references import Code, Refer, UnknownDefinition
from .repeats import encode_rests, repeated
from .script import SCRIPT_MODULES, clear_script, leave_script, stay_in_script
from .wording import said, task_name

__all__ = [
    "APART",
    "ATOMS",
    "BLOCK",
    "BLOCK_NBYTES",
    "CONTRIBUTES",
    "SCRIPT_MODULES",
    "Blocks",
    "CallableCache",
    "Code",
    "Encoded",
    "Frozen",
    "Kind",
    "Packed",
    "Prepared",
    "Refer",
    "Torn",
    "UnknownDefinition",
    "as_bytes",
    "clear_script",
    "collect_globals",
    "compact",
    "encode_blocks",
    "encode_rests",
    "frozen",
    "innermost",
    "is_own_generator",
    "join",
    "join_all",
    "join_apart",
    "leave_script",
    "pack_call",
    "pack_exception",
    "pack_value",
    "reads",
    "repeated",
    "said",
    "segments",
    "split",
    "stay_in_script",
    "task_name",
    "unpack",
    "unpack_call",
    "unpack_outcome",
    "use_prepared",
    "without_partial",
]
