"""Where every byte of the window lies: the only package that knows byte positions.

One window holds the table, at the repository rank, all displacements in bytes::

    0        identity      magic, version, geometry; written once, before the epoch
    64       HEAD          first ticket that no pointer claim has taken     (CAS word)
    128      TAIL          first ticket that is not known to be published   (CAS word)
    192      TICKET        next ticket that a counter claim hands out       (counter word)
    256      words         one control word for each row                    (CAS words)
    ...      counters      as many as rows, each for one range of items    (counter words)
    ...      beats         one for each member: how often its heart beat    (CAS words)
    ...      descriptors   one DESCRIPTOR_NBYTES record for each row        (Put, Get)
    ...      outcomes      one OUTCOME_NBYTES record for each row           (Put, Get)
    ...      arena         one region for each member                       (Put, Get, Accumulate)

A *ticket* numbers a publication and only grows; it belongs to row ``ticket % rows`` in generation
``ticket // rows + 1``.  A *member* is the driver (0) or a worker (1, 2, ...); where there are
several ranks, it is a rank of the job's ``rma.Group``.

Each control word belongs to one kind of atomic for its whole life (see ``rma``), and the columns
keep the words together so that one small Get shows the state of the whole table.

``words`` has the fields of a control word, ``records`` what stands in the records of a row,
``geometry`` the displacements, and ``control`` the other window, by which workers are called.
"""

from __future__ import annotations

from .geometry import (
    HEAD,
    IDENTITY_NBYTES,
    MAX_ROWS,
    PAGE_NBYTES,
    TAIL,
    TICKET,
    Geometry,
)
from .records import (
    DESCRIPTOR_NBYTES,
    INLINE,
    INLINE_OUTCOME_NBYTES,
    INLINE_PAYLOAD_NBYTES,
    NO_BLOB,
    NO_ITEMS,
    NOTHING,
    OUTCOME_NBYTES,
    PLACE_AT,
    STREAMED,
    Blob,
    Descriptor,
    Items,
    Piece,
    TaskOutcome,
    Terms,
    inline_outcome,
    read_carried,
    read_descriptor,
    read_extent,
    read_outcome,
    read_piece,
    read_place,
    read_task_outcomes,
    read_terms,
    write_carried,
    write_descriptor,
    write_extent,
    write_outcome,
    write_piece,
    write_task_outcome,
    write_terms,
)
from .words import (
    MAX_ATTEMPT,
    MAX_GENERATION,
    MAX_MEMBERS,
    MAX_TASKS,
    STRIDE,
    WORD_NBYTES,
    States,
    attempt_of,
    change_state,
    ended_of,
    generation_of,
    is_recalled,
    is_stride,
    next_beat,
    next_tasks,
    owner_of,
    pack_word,
    recall_tasks,
    rest_of,
    rewrite_word,
    started_of,
    state_of,
    stride_after,
)

__all__ = [
    "DESCRIPTOR_NBYTES",
    "HEAD",
    "IDENTITY_NBYTES",
    "INLINE",
    "INLINE_OUTCOME_NBYTES",
    "INLINE_PAYLOAD_NBYTES",
    "MAX_ATTEMPT",
    "MAX_GENERATION",
    "MAX_MEMBERS",
    "MAX_ROWS",
    "MAX_TASKS",
    "NOTHING",
    "NO_BLOB",
    "NO_ITEMS",
    "OUTCOME_NBYTES",
    "PAGE_NBYTES",
    "PLACE_AT",
    "STREAMED",
    "STRIDE",
    "TAIL",
    "TICKET",
    "WORD_NBYTES",
    "Blob",
    "Descriptor",
    "Geometry",
    "Items",
    "Piece",
    "States",
    "TaskOutcome",
    "Terms",
    "attempt_of",
    "change_state",
    "ended_of",
    "generation_of",
    "inline_outcome",
    "is_recalled",
    "is_stride",
    "next_beat",
    "next_tasks",
    "owner_of",
    "pack_word",
    "read_carried",
    "read_descriptor",
    "read_extent",
    "read_outcome",
    "read_piece",
    "read_place",
    "read_task_outcomes",
    "read_terms",
    "recall_tasks",
    "rest_of",
    "rewrite_word",
    "started_of",
    "state_of",
    "stride_after",
    "write_carried",
    "write_descriptor",
    "write_extent",
    "write_outcome",
    "write_piece",
    "write_task_outcome",
    "write_terms",
]
