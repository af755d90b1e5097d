"""What the driver keeps in its part of the arena: payloads, code, contexts, and one buffer.

    payloads   small ones as long as their row is there, large ones until their task is over
    shared     code and contexts, as long as tasks may need them, at most a quarter of the room
    buffer     an eighth at the most: two pieces of something that finds no room as a whole

A descriptor says where a worker finds what it needs of them.  Nothing fails for want of room: what
does not fit is STREAMED, piece by piece through the buffer, which nothing else can use up.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container

from .. import layout, verbs
from ..arena import pair_nbytes, piece_of, put, write
from ..context import ISOLATED
from ..extents import Extent, Region
from ..layout import NO_BLOB, NO_ITEMS, Blob, Piece
from ..repository import Row
from ..serializer import Code, Encoded, Packed
from ..system.memory import empty
from ..tasks import Batch, Holds, Shared, SharedCode, Task

#: Functions whose code stays in the arena.
CODES = 256


class Store:
    """The driver's part of one arena.  Not thread-safe: its driver holds the lock.

    Parameters
    ----------
    window : verbs.Window
    part : Extent
        Where it lies.

    Attributes
    ----------
    most_nbytes : int
        The largest payload that lies in the arena; larger ones are streamed.
    apart : dict of Task to None
        Whose payloads lie there until they are over, the last one at the end.
    """

    def __init__(self, window: verbs.Window, part: Extent) -> None:
        self.region = Region(part)
        self.apart: dict[Task, None] = {}
        self._window = window
        self._codes: OrderedDict[int, SharedCode] = OrderedDict()  # the latest used last
        self._shared_room = part.nbytes // 4  # left for shared bytes
        buffer = self.region.reserve(pair_nbytes(part.nbytes // 8))
        self.most_nbytes = part.nbytes // 8 * 5  # which buffer and shared bytes leave
        assert buffer is not None
        self._buffer = buffer
        self._reader: int | None = None  # the row whose piece lies in the buffer

    @property
    def busy_nbytes(self) -> int:
        """Bytes in use, beside the buffer."""
        return self.region.used_nbytes - self._buffer.nbytes

    def descriptor(self, batch: Batch, streamed: bool = False) -> bytes | None:
        """Return a batch's descriptor; None while the arena has no room for what it needs.

        What it names stays where it is until the batch is removed, or its tasks are over.

        Parameters
        ----------
        batch : Batch
        streamed : bool
            Whether a payload that finds no room goes in pieces, instead of waiting for room.

        Notes
        -----
        RMA cost: 1 put for each segment and 1 flush for each of payload, code and context that is
        not in the arena yet; none for a payload that stands in the record itself.
        """
        task, payload = batch.tasks[0], batch.payload
        code, context, segment = task.code, task.context, task.segment
        tasks, nbytes, inline, items = len(batch.tasks), len(payload), b"", NO_ITEMS
        if segment is not None:
            assert segment.items is not None
            items, inline = segment.items, layout.write_terms(segment.terms)
            _, offset, nbytes = self._blob(segment)
        elif tasks == 1 and task.extent is not None:
            offset, nbytes = task.extent
        elif type(payload) is bytes and nbytes <= layout.INLINE_PAYLOAD_NBYTES:
            offset, inline = layout.INLINE, payload
        elif (place := self._place(batch)) is not None:
            offset, nbytes = place
        elif streamed or nbytes > self.most_nbytes:
            offset = layout.STREAMED
        else:
            return None
        kind = task.kind | ISOLATED if context.isolated else task.kind
        of_code = NO_BLOB if code is None else code.placed or self._blob(code)
        of_context = context.placed or self._blob(context)
        self._hold(batch)  # before anybody can take it
        return layout.write_descriptor(
            (task.task_id, kind, *of_code, *of_context, offset, nbytes, tasks, *items), inline
        )

    # --- payloads -----------------------------------------------------------------------------

    def place(self, task: Task) -> bool:
        """Put the payload of a task where workers can get it until it is over, if there is room.

        Notes
        -----
        RMA cost: 1 put for each segment, 1 flush.
        """
        task.extent = self._put(task.payload, self.most_nbytes)
        if task.extent is None:
            return False
        self.apart[task] = None
        if task.retry is None:
            task.payload = b""
        return True

    def leave(self, task: Task, again: bool = False) -> None:
        """Give back the room of a task that is over.

        Parameters
        ----------
        task : Task
        again : bool
            There may be another attempt: its payload is kept here.

        Notes
        -----
        RMA cost: none; 1 get, 1 flush for another attempt.
        """
        extent = task.extent
        if extent is None:
            return
        if again and task.retry is None:
            task.payload = Packed([self.read(extent)], lent=True)
        self.apart.pop(task, None)
        task.extent = None
        if task.in_doubt:
            return  # a row that nobody knows may still be run with what is there
        try:
            self.region.release(extent)
        except RecursionError:  # before it has begun
            task.extent, self.apart[task] = extent, None
            raise

    def read(self, extent: Extent) -> memoryview:
        """Return a copy of what lies in the arena, of anybody's.  RMA cost: 1 get, 1 flush."""
        content = empty(extent.nbytes)
        self._window.get(extent.offset, content)
        self._window.flush()  # the bytes are here only after it
        return content

    def _put(self, content: Encoded, most_nbytes: int) -> Extent | None:
        """Put bytes into the arena; None if they are more than this, or there is no room."""
        nbytes = len(content)
        extent = self.region.reserve(nbytes) if nbytes <= most_nbytes else None
        if extent is not None:
            try:
                put(self._window, extent.offset, content)
                self._window.flush()  # our caller may change the arguments, and publish the rest
            except BaseException:
                self._window.flush()  # what has begun must not arrive when others have the room
                self.region.release(extent)
                raise
        return extent

    def _place(self, batch: Batch) -> Extent | None:
        """Put the payload of a row into the arena; return where, or None if there is no room.

        The caller's own arrays may change, and an attempt may be lost: they stay until their task
        is over.
        """
        if type(batch.payload) is Packed:
            task = batch.tasks[0]
            if self.place(task):
                batch.payload = task.payload
            return task.extent
        batch.extent = self._put(batch.payload, self.most_nbytes)
        if batch.extent is not None:
            batch.payload = b""  # each task has its own
        return batch.extent

    def _hold(self, batch: Batch) -> None:
        task = batch.tasks[0]
        if task.extent is not None:
            batch.doubt(True)
        batch.holds = context, code, segment = task.context, task.code, task.segment
        context.users += 1
        if code is not None:
            code.users += 1
        if segment is not None:
            segment.users += 1

    def remove(self, batch: Batch) -> None:
        """Give back what a batch held whose row is not there any more, or that has got none."""
        holds, batch.holds = batch.holds, ()
        if holds and batch.tasks[0].extent is not None:
            batch.doubt(False)
        extent, batch.extent = batch.extent, None
        self.give_back(holds, extent, batch.row)

    def give_back(self, holds: Holds, extent: Extent | None, row: Row) -> None:
        """Take back what a row held, and let others have the buffer if it read there."""
        for shared in holds:
            if shared is not None:
                shared.users -= 1
                if not shared.kept:
                    self._forget(shared)
        if extent is not None:
            self.region.release(extent)
        if self._reader == row.number:
            self._reader = None

    def forget_readers_but(self, rows: Container[int]) -> None:
        """Let others have the buffer if the row that reads in it was lost."""
        if self._reader not in rows:
            self._reader = None

    # --- code and contexts --------------------------------------------------------------------

    def code(self, code: Code) -> SharedCode:
        """Return a function as its tasks share it in this table."""
        shared = self._codes.get(code.code_id)
        if shared is None:
            shared = self._codes[code.code_id] = SharedCode(code.code_id, code.data)
            if len(self._codes) > CODES:
                self.drop(self._codes.popitem(last=False)[1])
        else:
            self._codes.move_to_end(code.code_id)
        return shared

    def _blob(self, shared: Shared) -> Blob:
        """Put shared bytes where workers can get them, once; what has no room yet is streamed.

        Notes
        -----
        RMA cost: once 1 put for each segment, 1 flush.
        """
        if shared.placed is None:
            nbytes = len(shared.content)
            place = self._put(shared.content, self._shared_room)
            if place is None:
                return Blob(shared.blob_id, layout.STREAMED, nbytes)
            self._shared_room -= nbytes
            shared.placed = Blob(shared.blob_id, *place)
        return shared.placed

    def drop(self, shared: Shared) -> None:
        """Say that no more tasks will need these bytes: they go with the last row that does."""
        shared.kept = False
        self._forget(shared)

    def _forget(self, shared: Shared) -> None:
        if not shared.users and shared.placed is not None:
            self._shared_room += shared.placed.extent.nbytes
            self.region.release(shared.placed.extent)
            shared.placed = None

    # --- pieces -------------------------------------------------------------------------------

    def supply(self, row: int, wanted: Piece, source: Encoded) -> Piece | None:
        """Put the piece that a row's owner wants into the buffer, and return the answer.

        None while the owner of another row reads its piece: ask again later.

        Notes
        -----
        RMA cost: 1 put for each segment, 1 flush.
        """
        if self._reader not in (None, row):
            return None
        if wanted.position == wanted.total_nbytes:  # the last piece was read
            self._reader = None
            return wanted
        extent = piece_of(self._buffer, wanted.position, len(source))
        write(self._window, extent.offset, source, wanted.position, extent.nbytes)
        self._reader = row
        return wanted._replace(extent=extent)
