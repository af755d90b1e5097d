"""What goes through the table in pieces, because there is no room for all of it at once.

The owner of a row asks for one piece after another, by the row's word::

    WANTED     of a payload, of code, of a context: the next one is put into the store's buffer
    OFFERED    of an outcome: it is fetched from the worker's part of the arena
"""

from __future__ import annotations

from .. import layout
from ..clock import monotonic
from ..protocol import Step
from ..repository import Publisher, Row, Stream
from ..serializer import Encoded
from ..system.memory import empty
from ..tasks import Batch
from .store import Store


class Streams:
    """The driver's ends of all streams.  Not thread-safe: its driver holds the lock.

    Parameters
    ----------
    publisher : Publisher
    store : Store

    Attributes
    ----------
    passed_s : float
        When a piece was passed on last.
    """

    def __init__(self, publisher: Publisher, store: Store) -> None:
        self.passed_s = 0.0
        self._window = publisher.window
        self._publisher = publisher
        self._store = store

    def supply(self, row: Row, batch: Batch) -> None:
        """Answer a worker that wants the next piece.

        While another one reads in the buffer there is no answer: this is called again.
        """
        task = batch.tasks[0]
        wanted = layout.read_piece(self._publisher.read_record(row.number))
        source: Encoded = batch.payload if task.segment is None else task.segment.content
        if wanted.stream == Stream.CODE and task.code is not None:
            source = task.code.content
        elif wanted.stream == Stream.CONTEXT:
            source = task.context.content
        piece = self._store.supply(row.number, wanted, source)
        if piece is not None:
            self._publisher.supply(row, piece)
            self.passed_s = monotonic()

    def take(self, row: Row, batch: Batch) -> MemoryError | None:
        """Fetch the piece that a worker offers; return why not, if there is no memory for all."""
        piece = layout.read_piece(self._publisher.read_record(row.number))
        if piece.position == 0:
            try:
                batch.incoming = empty(piece.total_nbytes)
            except MemoryError as error:
                return error
        assert batch.incoming is not None
        end = piece.position + piece.extent.nbytes
        self._window.get(piece.extent.offset, batch.incoming[piece.position : end])
        self._window.flush()  # the worker writes the one after next over it
        self._publisher.step(row, Step.TAKE)
        self.passed_s = monotonic()
        return None
