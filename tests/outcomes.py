"""What the driver makes of an exception that a task has raised."""

from __future__ import annotations

from workpool.errors import RemoteTraceback
from workpool.serializer import Kind, pack_exception, unpack_outcome


def carried(exc):
    """Return what the driver makes of an exception raised in a task."""
    data = pack_exception(exc, task="simulate", rank=3, host="node17")
    assert isinstance(data, bytes)
    value, arrived = unpack_outcome(Kind.EXCEPTION, data, "simulate")
    assert value is None
    assert arrived is not exc
    return arrived


def raised(exc):
    """Return an exception after it has been raised, as a worker catches it."""
    try:
        raise exc
    except BaseException as caught:
        return caught


def remote_text(exc):
    assert isinstance(exc.__cause__, RemoteTraceback)
    return exc.__cause__.text
