"""One window and its verbs: the only package that calls MPI.

A ``Window`` lies on one rank, its *host*, and has some fifteen verbs.  Each rank opens one shared
access epoch (``Lock_all``) when the window is allocated and closes it when the window is freed; in
between the rules are:

* ``load``, ``compare_and_swap``, ``compare_and_swap_all`` and ``fetch_add`` are atomic and complete
  (flushed) when they return, because their caller needs the answer.
* ``put``, ``get``, ``accumulate`` and ``get_numbers`` are complete at the next ``flush``, or at the
  end of the next ``compare_and_swap_all``; until then the buffers belong to MPI, but for that of a
  *buffered* ``put``.  Nothing may be published before the flush that completes what it points to.
* ``put_and_swap`` is a ``put``, that flush, and a ``compare_and_swap_all``: it publishes.
  ``get_and_swap`` is a ``get`` and a ``compare_and_swap_all`` in no order, complete at its end.
* ``copy`` and ``peek`` are each a ``get`` with its flush.  ``copy`` is for bytes that are known to
  be there.  ``peek`` (of control words) is for finding out: what is read after it is never older
  than what it has shown.  ``await_change`` is a ``peek`` that looks again and again for a while, or
  that sleeps, by ``MPI_Rget``, until the answer comes from another host.
* On one host all ranks have the memory of the window, and on several its host has.  There a
  transfer is a load or a store, and ``MPI_Win_sync`` stands for its flush; the atomics, and all
  that works on arrays of numbers, go through MPI all the same.
* A control word is a CAS word or a counter word for ever.  ``load`` reads a CAS word by a compare
  with a value that is never stored, ``fetch_add(disp, 0)`` reads a counter word with ``NO_OP``:
  MPI does not promise that the kinds mix.  A ``get`` or ``peek`` of control words gives a hint,
  good for deciding where to compare and swap, never for deciding that it worked; ``repository``
  says what three facts may be taken from one.
* ``accumulate`` is atomic for each element, together with ``get_numbers`` and with itself if dtype
  and operation are the same; with a ``get`` or a ``put`` at the same time it is not.
* Displacements are bytes.  Bounds and alignment are checked here, because no MPI checks them: every
  verb raises ``WindowError`` for a place outside of the window, or where MPI reports an error.

Every call into MPI holds one lock per process, so ``MPI_THREAD_SERIALIZED`` is enough.  The
window of a rank that is alone is an ``OwnWindow``: the same verbs, on its memory.  Where ranks of
other hosts may be lost, it is a ``PatientWindow``, which counts by compare-and-swap.

The modules::

    mpi           loads MPI
    group         the ranks of a job, which allocate windows together
    window        all verbs; those on words and on arrays of numbers are in words and elements
    own, patient  the other kinds of windows
    glance        how a rank without work looks at the memory of another host, asleep
    ticker        the thread that makes progress on a window's host
    ops           MPI's operations and datatypes, by name
    naming        MPI and a window, described in words
    ending        what is done when somebody calls MPI.Finalize

References: MPI-4.1 chapter 12 (one-sided communications), sections 12.2.2 (``MPI_Win_allocate``),
12.2.3 (``MPI_Win_allocate_shared``), 12.3.4 (atomics), 12.5.3 (``MPI_Win_lock_all``), 12.5.4
(flush), 12.7 (semantics).
"""

from __future__ import annotations

from .ending import HANGS, at_finalize
from .group import Group, check_root, world_size
from .naming import info, library_version
from .ops import is_op, op_name
from .window import Window

__all__ = [
    "HANGS",
    "Group",
    "Window",
    "at_finalize",
    "check_root",
    "info",
    "is_op",
    "library_version",
    "op_name",
    "world_size",
]
