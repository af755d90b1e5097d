"""The bottom layers by themselves: layout, protocol, arena, and both halves in plain memory."""

from __future__ import annotations

import math
import os
import random
import signal
import socket
import sys
import threading
import time
import weakref
from array import array
from gc import get_referents
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import workpool
from workpool import accumulator, layout, protocol
from workpool.accumulator import Accumulators
from workpool.arena import LONG_NBYTES, Region, empty
from workpool.contributions import KEPT_NBYTES, Contributions, combine, current, unpack
from workpool.errors import (
    LayoutError,
    ProtocolError,
    RemoteTraceback,
    TaskLost,
    UsageError,
    WindowError,
)
from workpool.job.drain import Drain
from workpool.job.threads import Attendant, Flag
from workpool.journal.ledger import Ledgers
from workpool.layout import NO_BLOB, Blob, Descriptor, Extent, Geometry, Items, Piece
from workpool.pool.future import PoolFuture
from workpool.pool.resolver import Resolver
from workpool.protocol import TRANSITIONS, State, Step
from workpool.recent import Recent
from workpool.serializer import Kind, pack_exception
from workpool.system.status import Watch
from workpool.tasks import Context, Finished, PoolContext, Task, TaskKind
from workpool.testing import MemoryWindow

# --- layout -------------------------------------------------------------------------------------

EXTREMES = [
    (0, 0, 0, 0),
    (8, 1, 1, 1),
    (15, layout.MAX_MEMBERS, layout.MAX_ATTEMPT, layout.MAX_GENERATION),
]


@pytest.mark.parametrize(("state", "owner", "attempt", "generation"), EXTREMES)
def test_word_round_trip(state: int, owner: int, attempt: int, generation: int) -> None:
    word = layout.pack_word(state, owner, attempt, generation)
    assert 0 <= word < 2**63, "a control word is never negative: NEVER must not be stored"
    assert layout.state_of(word) == state
    assert layout.owner_of(word) == owner
    assert layout.attempt_of(word) == attempt
    assert layout.generation_of(word) == generation
    other = layout.pack_word((state + 1) % 16, owner, attempt, generation)
    assert layout.States([state]).rows(array("q", [other, word, other, word])) == [1, 3]
    assert layout.States(range(16)).rows(array("q", [word, other])) == [0, 1]
    changed = layout.rewrite_word(word, 3, 7)
    assert changed == layout.pack_word(3, 7, attempt, generation)


def test_outcomes_of_a_batch_round_trip() -> None:
    outcomes = [(1, 5, b"x"), (2, 0, b""), (3, 10**18, b"12345678"), (4, 7, b"")]
    content = b"".join(layout.write_task_outcome(*outcome) for outcome in outcomes)
    for count in (None, *range(len(outcomes) + 1)):
        found = layout.read_task_outcomes(memoryview(content), count)
        assert [(kind, ns, bytes(encoded)) for kind, ns, encoded in found] == outcomes[:count]
    for cut in range(1, len(content)):
        with pytest.raises(LayoutError):
            layout.read_task_outcomes(memoryview(content)[:-cut], len(outcomes))
    with pytest.raises(LayoutError):
        layout.read_task_outcomes(memoryview(content), len(outcomes) + 1)


def test_records_round_trip() -> None:
    blob, items = Blob(2**63, layout.STREAMED, 2**63), Items(3, 2**40, 7)
    descriptor = Descriptor(2**63, 1, *blob, *NO_BLOB, *Extent(2**62, 5), 99, *items)
    inline = bytes(range(layout.INLINE_PAYLOAD_NBYTES))
    record = layout.write_descriptor(descriptor, inline)
    assert len(record) == layout.DESCRIPTOR_NBYTES
    found, rest = layout.read_descriptor(memoryview(record))
    assert (found, bytes(rest)) == (descriptor, inline)
    assert (found.code, found.context, found.items) == (blob, NO_BLOB, items)
    assert found.payload == Extent(2**62, 5)
    outcome = 2, 10**18, layout.INLINE, layout.INLINE_OUTCOME_NBYTES
    inline = bytes(range(layout.INLINE_OUTCOME_NBYTES))
    record = layout.write_outcome(*outcome, inline)
    assert len(record) == layout.PLACE_AT
    record += layout.write_place(Extent(2**62, 2**40))
    assert len(record) == layout.OUTCOME_NBYTES
    assert layout.read_place(memoryview(record)) == Extent(2**62, 2**40)
    assert layout.read_outcome(memoryview(record)) == outcome
    assert bytes(layout.inline_outcome(memoryview(record), len(inline))) == inline
    piece = Piece(3, 2**40, 2**41, Extent(-1, 7))
    assert layout.read_piece(memoryview(layout.write_piece(piece))) == piece


@pytest.mark.parametrize("rows", [1, 7, 1024, layout.MAX_ROWS])
@pytest.mark.parametrize("members", [2, 3, 100])
def test_nothing_overlaps_in_a_geometry(rows: int, members: int) -> None:
    geometry = Geometry(rows, members, 2 * members * layout.PAGE_NBYTES + 12345)
    last = rows - 1
    stretches = [
        (0, layout.IDENTITY_NBYTES),
        *[(w, 8) for w in (layout.HEAD, layout.TAIL, layout.TICKET, layout.CLOSED)],
        (geometry.word(0), 8 * rows),
        (geometry.counter(0), 8 * rows),
        (geometry.descriptor(0), layout.DESCRIPTOR_NBYTES * rows),
        (geometry.outcome(0), layout.OUTCOME_NBYTES * rows),
        *[geometry.region(member) for member in range(members)],
    ]
    end = 0
    for start, nbytes in sorted(stretches):
        assert start >= end
        assert nbytes > 0
        end = start + nbytes
    assert end <= geometry.nbytes
    assert geometry.word(last) % 8 == geometry.descriptor(last) % 64 == geometry.outcome(last) % 64
    for ticket in (0, 1, rows - 1, rows, 10 * rows + 3):
        row, generation = geometry.row(ticket), geometry.generation(ticket)
        assert geometry.ticket(row, layout.pack_word(1, 2, 3, generation)) == ticket


@pytest.mark.parametrize(
    "sizes",
    [(0, 2, 1 << 20), (layout.MAX_ROWS + 1, 2, 1 << 20), (8, 1, 1 << 20), (8, 2, 100)],
)
def test_a_geometry_outside_its_limits(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        Geometry(*sizes)


def test_identity() -> None:
    geometry = Geometry(8, 3, 1 << 20)
    geometry.check_identity(geometry.identity())
    with pytest.raises(LayoutError, match="same version"):
        Geometry(9, 3, 1 << 20).check_identity(geometry.identity())
    with pytest.raises(LayoutError):
        geometry.check_identity(bytes(layout.IDENTITY_NBYTES))


# --- protocol -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("step", [step for step in Step if step not in (Step.RESERVE, Step.CLAIM)])
def test_steps_are_those_of_the_table(state: State, step: Step) -> None:
    word = layout.pack_word(state, 5, 2, 9)
    if step is Step.GIVE_BACK:
        word = layout.next_tasks(word, 0, stride=True)
    if (state, step) in TRANSITIONS:
        after = protocol.advance(word, step)
        assert layout.state_of(after) == TRANSITIONS[state, step]
        assert (layout.owner_of(after), layout.attempt_of(after)) == (5, 2)
        assert layout.generation_of(after) == 9
        assert layout.ended_of(after) == (step is Step.NEXT)
        assert layout.is_recalled(after) == (step in (Step.RECALL, Step.GIVE_BACK))
    else:
        with pytest.raises(ProtocolError, match=state.name):
            protocol.advance(word, step)


@pytest.mark.parametrize("state", State)
def test_claim_and_reserve_name_the_new_owner(state: State) -> None:
    word = layout.pack_word(state, 5, 2, 9)
    if state is State.READY:
        assert protocol.claim(word, 7) == layout.pack_word(State.CLAIMED, 7, 2, 9)
    else:
        with pytest.raises(ProtocolError):
            protocol.claim(word, 7)
    if state is State.FREE:
        assert protocol.reserve(word, 7, 10) == layout.pack_word(State.RESERVED, 7, 0, 10)
    if state is State.RESERVED:
        assert protocol.publish(word, 3) == layout.pack_word(State.READY, 5, 3, 9)
        assert layout.attempt_of(protocol.publish(word, 1000)) == layout.MAX_ATTEMPT
    else:
        with pytest.raises(ProtocolError):
            protocol.publish(word, 3)
    for generation in (8, 9, layout.MAX_GENERATION + 1):
        with pytest.raises(ProtocolError):
            protocol.reserve(word, 7, generation)


def test_every_state_can_be_left_and_reached() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)
    assert {step for _, step in TRANSITIONS} == set(Step)


# --- arena --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_region_against_a_map_of_bytes(seed: int) -> None:
    chance = random.Random(seed)
    stretch = Extent(4096, 64 * 200)
    region, used, held = Region(stretch), bytearray(stretch.nbytes), []
    for _ in range(600):
        if held and chance.random() < 0.5:
            extent = held.pop(chance.randrange(len(held)))
            region.release(extent)
            start = extent.offset - stretch.offset
            used[start : start + extent.nbytes] = bytes(extent.nbytes)
            with pytest.raises(ProtocolError):
                region.release(extent)
            continue
        nbytes = chance.choice([0, 1, 63, 64, 65, 500, 3000])
        extent = region.reserve(nbytes)
        needed = bytes(-(-max(1, nbytes) // 64) * 64)
        lines = b"".join(b"x" if any(used[i : i + 64]) else b"." for i in range(0, len(used), 64))
        assert (extent is None) == (b"." * (len(needed) // 64) not in lines)
        if extent is not None:
            start = extent.offset - stretch.offset
            assert extent.offset % 64 == 0
            assert extent.nbytes == nbytes
            assert 0 <= start <= stretch.nbytes - len(needed)
            assert not any(used[start : start + len(needed)]), "given twice"
            used[start : start + max(1, nbytes)] = b"\1" * max(1, nbytes)
            held.append(extent._replace(nbytes=max(1, nbytes)))
    for extent in held:
        region.release(extent)
    assert region.reserve(stretch.nbytes) == stretch


def test_region_takes_back_only_what_it_gave() -> None:
    region = Region(Extent(4096, 4096))
    for foreign in (Extent(0, 64), Extent(4096, 64), Extent(8192, 64)):
        with pytest.raises(ProtocolError, match="not reserved"):
            region.release(foreign)


def test_long_memory_begins_on_a_cache_line() -> None:
    several = [empty(LONG_NBYTES + n) for n in range(10)]
    assert [len(memory) - LONG_NBYTES for memory in several] == list(range(10))
    assert not any(np.asarray(memory).ctypes.data % layout.LINE_NBYTES for memory in several)


def test_numbers_are_read_atomically_while_others_add() -> None:
    window = MemoryWindow(256)
    spec = accumulator.check((4,), "int64", "sum")._replace(offset=64)
    numbers = Accumulators().add(spec, window)
    numbers.add([1, 2, 3, 4])
    window.accumulate(64, np.ones(4, np.int64), "sum")  # under way: there is no flush
    assert numbers.value().tolist() == [2, 3, 4, 5]
    window.accumulate(64, np.ones(4, np.int64), "sum")
    with pytest.raises(WindowError, match="overlaps"):
        window.get(64, bytearray(8))


@pytest.mark.parametrize(("op", "number"), [("prod", 1e-200), ("sum", 1.7e308)])
def test_what_a_task_wants_of_floating_point_is_not_for_accumulators(
    op: str, number: float
) -> None:
    spec = accumulator.check((), "float64", op)._replace(offset=0)
    contributions = Contributions()
    with np.errstate(all="raise"):
        for _ in range(2):
            contributions.add(spec, np.array(number))
            contributions.keep()
    window = MemoryWindow(256)
    contributions.make(window)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_no_number_to_a_minimum(dtype: str) -> None:
    for op, best in (("min", 5), ("max", 7)):
        contributions = Contributions()
        token = current.set(contributions)
        try:
            adding = accumulator.Accumulator(accumulator.check(2, dtype, op)._replace(offset=0))
            for numbers in ([5, np.nan], [np.nan, np.nan], [7, np.nan]):
                adding.add(np.array(numbers, dtype))
        finally:
            current.reset(token)
        (part,) = contributions.parts.values()
        assert part[0] == best
        assert np.isinf(part[1])


def test_integers_that_do_not_fit_are_refused() -> None:
    contributions = Contributions()
    token = current.set(contributions)
    try:
        adding = accumulator.Accumulator(accumulator.check(np.int64(2), "int32", "max"))
        adding.add([1, -(2**31)])
        adding.add(np.array([1, 2], "int8"))
        for numbers in ([3_000_000_000, 1], np.array([0, 2**63], "uint64")):
            with pytest.raises(UsageError, match=r"beyond its dtype|convert it first"):
                adding.add(numbers)
        small = accumulator.Accumulator(accumulator.check((), "uint8", "sum"))
        small.add(np.uint16(255))
        with pytest.raises(UsageError, match="beyond its dtype"):
            small.add(np.uint16(300))
    finally:
        current.reset(token)


def test_contributions_keep_what_mpi_reads_until_the_flush() -> None:
    class Lent(MemoryWindow):
        def accumulate(self, disp: int, values: NDArray[Any], op: str) -> None:
            lent.append(weakref.ref(values))
            super().accumulate(disp, values.copy(), op)  # which keeps what it gets

        def flush(self) -> None:
            assert all(reference() is not None for reference in lent)
            super().flush()

    lent: list[weakref.ref[NDArray[Any]]] = []
    window = Lent(256)
    contributions = Contributions()
    for shape, offset in (((), 0), ((2, 3), 64)):
        spec = accumulator.check(shape, "int64", "sum")._replace(offset=offset)
        for _ in range(3):
            contributions.add(spec, np.ones(shape, "int64"))
    contributions.keep()
    contributions.make(window)
    assert len(lent) == 2
    assert window.memory.word(0) == window.memory.word(64) == 3


@pytest.mark.parametrize("carried", [False, True])
def test_contributions_keep_few_parts_however_many_tasks_there_are(carried: bool) -> None:
    shape = (KEPT_NBYTES // 32,)  # four of them are not too many
    specs = [
        accumulator.check(shape, "int64", op)._replace(offset=offset)
        for op, offset in (("sum", 0), ("max", 8 * shape[0]))
    ]
    contributions = Contributions()
    parts: list[weakref.ref[NDArray[Any]]] = []
    for task in range(20):
        contributions.task = task
        for spec in specs[: 1 + task % 2]:
            values = np.full(shape, task)
            parts.append(weakref.ref(values))
            contributions.add(spec, values)
            del values
        contributions.keep()
        assert sum(part() is not None for part in parts) <= 6
    if carried:
        groups = unpack(contributions.packed())
        assert [group.tasks for group in groups] == [{*range(0, 20, 2)}, {*range(1, 20, 2)}]
        (even, odd), (most,) = (
            [g.parts[spec] for g in groups if spec in g.parts] for spec in specs
        )
        assert (even + odd == 190).all()
        assert (most == 19).all()
        return
    window = MemoryWindow(16 * shape[0])
    contributions.make(window)
    assert window.memory.word(0) == window.memory.word(8 * shape[0] - 8) == 190
    assert window.memory.word(8 * shape[0]) == window.memory.word(16 * shape[0] - 8) == 19


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float32", "complex64", "bool"])
@pytest.mark.parametrize("op", accumulator.OPERATIONS)
def test_many_parts_are_combined_as_one_after_another(op: str, dtype: str) -> None:
    if np.dtype(dtype).kind not in accumulator.OPERATIONS[op].kinds:
        with pytest.raises(UsageError, match="MPI defines no such reduction"):
            accumulator.check(3, dtype, op)
        return
    for shape in ((), (3,), (2, 3)):
        spec = accumulator.check(shape, dtype, op)
        numbers = np.arange(1, 50 * (np.prod(shape, dtype=int)) + 1) % 7
        parts = [np.asarray(part) for part in numbers.reshape(-1, *shape).astype(dtype)]
        total = parts[0]
        for part in parts[1:]:
            total = combine(spec, (total, part))
        together = combine(spec, parts)
        assert type(together) is np.ndarray
        assert (together.dtype, together.shape) == (total.dtype, total.shape)
        np.testing.assert_allclose(together, total, rtol=1e-5)


def test_memory_window_takes_the_freedoms_of_mpi() -> None:
    window = MemoryWindow(256)
    source, target = bytearray(b"abcdefgh"), bytearray(8)
    window.put(64, source)
    assert window.memory.read(64, 8) == bytes(8), "a put is not visible before its flush"
    window.flush()
    window.get(64, target)
    assert target != b"abcdefgh", "a get has read nothing before its flush"
    window.flush()
    assert target == b"abcdefgh"
    window.put(64, source)
    source[0] = 0
    with pytest.raises(WindowError, match="changed"):
        window.flush()
    for disp in (-8, 4, 256):
        with pytest.raises(WindowError):
            window.load(disp)
    with pytest.raises(WindowError):
        window.put(250, bytes(8))


# --- threads and processes ----------------------------------------------------------------------


def test_the_attendant_does_what_it_was_told_before_it_ends() -> None:
    class Late(Attendant):
        def _act(self) -> None:
            super()._act()
            if not self._stopped:  # somebody tells, and ends it, just now
                self.call(lambda: done.append(True))
                self.stop()

    done: list[bool] = []
    attendant = Late(list, bool, bool)
    attendant._thread = threading.current_thread()
    attendant._attend()
    assert done == [True]


def test_a_finalizer_may_tell_the_attendant_wherever_it_comes() -> None:
    """It comes between any two steps of Python, in whatever thread sets or clears what it wants."""
    attendant = Attendant(list, bool, bool)

    def come(*_: object) -> object:
        if not coming:
            coming.append(True)
            attendant.ring()
            attendant.call(bool)
            coming.clear()
        return come

    def meet() -> None:
        steps = [attendant.ring, lambda: attendant.call(bool), attendant.stop]
        for flag in (attendant._work, attendant._bell):
            steps += [flag.clear, lambda flag=flag: flag.wait(0.0), flag.clear, flag.set]
        for step in steps:
            sys.settrace(come)
            step()
            sys.settrace(None)
        met.append(True)

    coming: list[bool] = []
    met: list[bool] = []
    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    thread.join(10)
    assert met


def test_a_finalizer_may_submit_wherever_the_attendant_starts() -> None:
    def start(attendant: Attendant, at: int) -> None:
        """Wake it, and once more from the midst of that."""

        def come(*_: object) -> object:
            nonlocal step
            step += 1
            if step == at:
                attendant.wake()
            return come

        sys.settrace(come)
        attendant.wake()
        sys.settrace(None)

    for at in range(1, 1000):
        step = 0
        attendant = Attendant(list, bool, bool)
        thread = threading.Thread(target=start, args=(attendant, at), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("workpool-attendant") == 1
        attendant.stop()
        if step < at:
            break
    assert at > 20


def test_two_threads_that_wait_for_what_is_lost_are_both_told() -> None:
    """Also the one that comes while the other is about to end the future."""

    def wait(*_: object) -> bool:
        raise TaskLost

    pool: Any = SimpleNamespace(driver=SimpleNamespace(wait=wait), lose=lambda *_: None)
    with pytest.raises(TaskLost):
        PoolFuture[int](pool).result()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="every instance has a dict before 3.11")
def test_futures_have_no_dict_each() -> None:
    """However many are made before one ends: the garbage collector would look at each."""
    pool: Any = SimpleNamespace(lock=threading.RLock())
    futures = [PoolFuture[int](pool) for _ in range(100)]
    for future in futures:
        future.resolve(1, None)
    assert not [
        future for future in futures if any(type(it) is dict for it in get_referents(future))
    ]


def test_what_a_finalizer_told_the_attendant_before_the_first_task_is_done() -> None:
    attendant = Attendant(list, bool, bool)
    done: list[bool] = []
    attendant.call(lambda: done.append(True))
    thread = threading.Thread(target=lambda: attendant.join(lambda: bool(done)), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    attendant.stop()


def test_a_flag_ends_the_wait_of_another_thread_and_stays_set() -> None:
    flag, seen = Flag(), []
    thread = threading.Thread(target=lambda: (flag.wait(10), seen.append(flag.is_set())))
    thread.start()
    flag.set()
    thread.join(10)
    flag.set()
    assert (seen, flag.is_set()) == ([True], True)
    flag.clear()
    flag.wait(1e-3)
    assert not flag.is_set()


def test_a_handler_of_the_programs_own_stays_where_it_is() -> None:
    def own(signum: int, frame: object) -> None: ...

    announced: list[float] = []
    drain = Drain(list, announced.append, lambda status: None)
    before = signal.signal(signal.SIGTERM, own)
    try:
        for change in (lambda: drain.open(1.0), drain.close):
            change()
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert not announced


def test_a_drain_takes_as_long_as_the_journals_that_are_open_want() -> None:
    announced: list[float] = []
    drain = Drain(list, announced.append, lambda status: None)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        for several in ([300, 20], [1]):
            for drain_s in several:
                drain.open(drain_s)
            for _ in several:
                drain.close()
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert announced == [300, 300, 0, 1, 0]


def test_a_driver_that_was_killed_falls_silent(tmp_path: Path) -> None:
    with Watch(str(tmp_path)) as watch, socket.socket(socket.AF_UNIX) as driver:
        driver.connect(str(tmp_path / "driver"))
        driver.sendall(b"123\n")
        watch.look(1)
        watch.look(1)
        assert watch.driver == 123
        driver.close()  # with what it was sent unread
        watch.look(1)
        assert watch.silent


def test_buffers_are_held_until_the_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lent(bytearray):
        pass

    class Win:
        def Compare_and_swap(self, *_: Any) -> None:
            raise AssertionError

        def Put(self, given: list[Any], host: int, disp: int) -> None:
            held.append(weakref.ref(given[0].obj))

        def Flush(self, host: int) -> None:
            alive.append([reference() is not None for reference in held])

    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.window import Window

    held: list[weakref.ref[Any]] = []
    alive: list[list[bool]] = []
    window = Window(Win(), 0, 4096, threading.Lock())  # type: ignore[arg-type]
    window.put(0, Lent(8))
    window.put(64, Lent(8))
    window.flush()
    assert alive == [[True, True]]
    assert [reference() for reference in held] == [None, None]


def test_many_atomics_share_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    class Win:
        def Compare_and_swap(
            self, origin: Any, compare: Any, result: Any, host: int, disp: int
        ) -> None:
            under_way.append(disp)
            result[0][0] = words.get(disp, 0)
            if words.get(disp, 0) == compare[0][0]:
                words[disp] = origin[0][0]

        def Flush(self, host: int) -> None:
            flushed.append(len(under_way))
            under_way.clear()

    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.window import Window
    from workpool.rma.words import BATCH

    under_way: list[int] = []
    flushed: list[int] = []
    words = {8 * i: i for i in range(0, 1000, 2)}
    window = Window(Win(), 0, 8000, threading.Lock())  # type: ignore[arg-type]
    steps = [(8 * i, 0, 1000) for i in range(1000)]
    assert window.compare_and_swap_all(steps) == [0 if i % 2 else i for i in range(1000)]
    assert words == {8 * i: i if i % 2 == 0 and i else 1000 for i in range(1000)}
    assert sum(flushed) == 1000
    assert max(flushed) == BATCH
    for disp in (-8, 4, 8000):
        with pytest.raises(WindowError, match="outside"):
            window.compare_and_swap_all([(0, 1, 2), (disp, 0, 1)])
        with pytest.raises(WindowError, match="outside"):
            window.peek(disp)


class RemoteWin:
    """A stand-in for ``MPI.Win`` that carries everything out, and writes down in which order."""

    def __init__(self, nbytes: int) -> None:
        self.content = bytearray(nbytes)
        self.calls: list[tuple[str, int]] = []  # with the displacement
        self._gets: list[tuple[memoryview, int]] = []

    def Put(self, given: list[Any], host: int, disp: int) -> None:
        self.calls.append(("put", disp))
        self.content[disp : disp + given[1]] = given[0]

    def Get(self, given: list[Any], host: int, disp: int) -> None:
        self.calls.append(("get", disp))
        self._gets.append((given[0].cast("B"), disp))

    def Accumulate(self, given: list[Any], host: int, disp: int, op: object) -> None:
        self.calls.append(("accumulate", disp))

    def Compare_and_swap(self, origin: Any, compare: Any, answer: Any, host: int, at: int) -> None:
        self.calls.append(("swap", at))
        words = memoryview(self.content).cast("q")
        answer[0][0] = words[at // 8]
        if answer[0][0] == compare[0][0]:
            words[at // 8] = origin[0][0]

    def Flush(self, host: int) -> None:
        self.calls.append(("flush", 0))
        for view, disp in self._gets:
            view[:] = self.content[disp : disp + len(view)]
        self._gets.clear()

    def Sync(self) -> None:
        self.calls.append(("sync", 0))


def remote_window(ours: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[RemoteWin, Any]:
    """Return a window, whose memory is ours or is not, and what it calls."""
    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.window import Window

    win = RemoteWin(4096)
    memory = memoryview(win.content) if ours else None
    return win, Window(win, 0, 4096, threading.Lock(), memory)  # type: ignore[arg-type]


@pytest.mark.parametrize("ours", [False, True])
def test_bytes_are_there_before_the_words_that_show_them(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    win, window = remote_window(ours, monkeypatch)
    assert window.put_and_swap(64, b"content", [(8, 0, 5), (16, 1, 5)]) == [0, 0]
    before = [("sync", 0)] if ours else [("put", 64), ("flush", 0)]
    swaps = [("swap", 8), ("swap", 16), ("flush", 0)]
    assert win.calls == [*before, *swaps]
    assert bytes(win.content[64:72]) == b"content\0"
    assert window.peek(8, 16) == [5, 0]
    win.calls.clear()
    window.accumulate(128, np.ones(1), "sum")
    window.put_and_swap(64, b"other", [(8, 5, 6)])  # and whatever was begun before
    assert ("flush", 0) in win.calls[: win.calls.index(("swap", 8))]
    assert bytes(win.content[64:72]) == b"othernt\0"
    win.calls.clear()
    for disp in (-8, -1, 4090, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.put_and_swap(disp, b"content", [(8, 6, 7)])
        with pytest.raises(WindowError, match="outside"):
            window.get_and_swap(disp, 7, [(8, 6, 7)])
    assert not win.calls
    for place in (-8, 4, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.put_and_swap(64, b"content", [(place, 0, 1)])
        with pytest.raises(WindowError, match="outside"):
            window.get_and_swap(64, 7, [(place, 0, 1)])
    assert window.peek(8) == [6]


def test_who_awaits_a_change_looks_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def others() -> None:
        nonlocal now
        now += 1
        waited.append(len(win.calls))
        if len(waited) == 3:
            memoryview(win.content).cast("q")[2] = 7

    waited: list[int] = []
    now = 0
    monkeypatch.setattr(os, "sched_yield", others)
    win, window = remote_window(True, monkeypatch)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    window._enter_s = math.inf
    assert window.await_change([0, 0], 8, 16, seconds=5) == [0, 7]
    assert waited == [0, 0, 0]
    assert win.calls == [("sync", 0)]  # nothing that is read from here on is older
    assert window.await_change([0, 7], 8, 16, seconds=5) == [0, 7]
    assert len(waited) == 8
    for seen, seconds in (([], 5), ([7, 0], 5), ([0, 7], 0)):
        assert window.await_change(seen, 8, 16, seconds=seconds) == [0, 7]
    assert len(waited) == 8
    for disp in (-8, 4, 4096):
        with pytest.raises(WindowError, match="outside"):
            window.await_change([0], disp, seconds=1)


def test_over_a_network_a_look_is_a_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_yield", lambda: 1 / 0)
    win, window = remote_window(False, monkeypatch)
    assert window.await_change([0, 0], 8, 16, seconds=5) == [0, 0]
    assert win.calls == [("get", 8), ("get", 16), ("flush", 0)]


@pytest.mark.parametrize("ours", [False, True])
def test_what_is_read_is_there_at_once(ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    win, window = remote_window(ours, monkeypatch)
    window._enter_s = math.inf
    win.content[64:71] = b"content"
    for take, calls in ((window.copy, []), (window.read, [("sync", 0)])):
        win.calls.clear()
        copy = take(64, 7)
        win.content[64:71] = b"changed"
        assert bytes(copy) == b"content"
        assert win.calls == (calls if ours else [("get", 64), ("flush", 0)])
        win.content[64:71] = b"content"
        for disp in (-8, -1, 4090, 4096):
            with pytest.raises(WindowError, match="outside"):
                take(disp, 7)


@pytest.mark.parametrize("ours", [False, True])
def test_a_copy_is_complete_by_the_flush_of_the_swaps(
    ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    win, window = remote_window(ours, monkeypatch)
    win.content[64:71] = b"content"
    copy, found = window.get_and_swap(64, 7, [(8, 0, 5), (16, 1, 5)])
    swaps = [("swap", 8), ("swap", 16), ("flush", 0)]
    assert win.calls == [*([] if ours else [("get", 64)]), *swaps]
    assert (bytes(copy), found) == (b"content", [0, 0])
    win.content[64:71] = b"changed"
    assert bytes(copy) == b"content"
    copy, found = window.get_and_swap(4092, 4, [])  # up to the very end
    assert (bytes(copy), found) == (bytes(4), [])


def test_a_window_of_ones_own_has_the_same_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_RC_INITIALIZE", "false")
    from workpool.rma.own import OwnWindow

    memory = memoryview(bytearray(4096))
    windows = [
        OwnWindow(RemoteWin(0), 0, 4096, threading.Lock(), memory),  # type: ignore[arg-type]
        MemoryWindow(4096),
    ]
    for window in windows:
        assert window.put_and_swap(64, b"content", [(8, 0, 5), (16, 1, 5)]) == [0, 0]
        copy, found = window.get_and_swap(64, 7, [(8, 5, 6), (16, 1, 5)])
        assert (bytes(copy), found) == (b"content", [5, 0])
        assert window.peek(8, 16) == [6, 0]
        with pytest.raises(WindowError):
            window.put_and_swap(4090, b"content", [(8, 6, 7)])
        with pytest.raises(WindowError):
            window.get_and_swap(4090, 7, [(8, 6, 7)])
        assert window.load(8) == 6


def test_attempts_that_were_lost_with_a_worker_are_told_of_one_that_fails() -> None:
    def nothing(*_: object) -> None:
        pass

    errors: list[BaseException] = []
    future = SimpleNamespace(resolve=lambda value, error: errors.append(error))
    context = PoolContext(1, Context(1, None, b""), nothing, nothing)
    task = Task(1, TaskKind.CALL, divmod, context, b"", future)
    task.attempt = 1
    raised = pack_exception(ZeroDivisionError(), task=divmod, rank=1, host="here")
    resolver = Resolver(
        None,  # type: ignore[arg-type]
        Accumulators(),
        Ledgers((None, ()), nothing, nothing),
        threading.RLock(),
        1,
        nothing,
        nothing,
    )
    resolver.resolve(Finished(context, 1, [(task, Kind.EXCEPTION, raised)]))
    (error,) = errors
    assert isinstance(error.__cause__, RemoteTraceback)
    assert error.__cause__.attempts == 2


def test_recent_keeps_what_is_used() -> None:
    recent: Recent[str] = Recent(3, 100)
    for key in range(3):
        recent.keep(key, str(key), 10)
    assert recent.use(0) == "0"
    recent.keep(3, "3", 10)
    assert list(recent) == [2, 0, 3]
    assert recent.use(1) is None
    recent.keep(2, "larger than all room", 101)  # and no reason to drop the others
    assert (list(recent), recent.nbytes) == ([0, 3], 20)
    recent.keep(4, "4", 90)
    assert (list(recent), recent.nbytes) == ([3, 4], 100)


def test_what_the_public_errors_are() -> None:
    for name in workpool.__all__:
        assert getattr(workpool, name).__name__ == name
