"""MPI's reduction operations and datatypes, by the names that others know them by."""

from __future__ import annotations

from ..errors import UsageError
from ..reduction import OPERATIONS
from .mpi import MPI

#: Reduction operations by the names of the standard.
OPS: dict[str, MPI.Op] = {name: getattr(MPI, name.upper()) for name in OPERATIONS}

#: MPI's datatypes by NumPy's kind and size.  Left to itself, mpi4py takes those of C, and in Open
#: MPI 4.1.4 a minimum of ``MPI_UNSIGNED_LONG`` is one of signed numbers.
DATATYPES: dict[str, MPI.Datatype] = {
    "i1": MPI.INT8_T,
    "i2": MPI.INT16_T,
    "i4": MPI.INT32_T,
    "i8": MPI.INT64_T,
    "u1": MPI.UINT8_T,
    "u2": MPI.UINT16_T,
    "u4": MPI.UINT32_T,
    "u8": MPI.UINT64_T,
    "f4": MPI.FLOAT,
    "f8": MPI.DOUBLE,
    "c8": MPI.C_FLOAT_COMPLEX,
    "c16": MPI.C_DOUBLE_COMPLEX,
    "b1": MPI.C_BOOL,
}


def is_op(op: object) -> bool:
    """Return whether something is a reduction operation of MPI."""
    return isinstance(op, MPI.Op)


def op_name(op: object) -> str:
    """Return the name of a reduction operation given as an ``MPI.Op`` or as its name.

    Raises
    ------
    UsageError
        If it is neither.
    """
    for name, known in OPS.items():
        if op == known or (isinstance(op, str) and op.lower() == name):
            return name
    raise UsageError(f"op={op!r}: use one of {', '.join(OPS)} or the MPI.Op of that name")
