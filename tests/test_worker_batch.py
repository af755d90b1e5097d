"""The tasks of one row, run in strides, and what the heart gives back meanwhile.

The interleavings of the steps in the window are explored by ``test_model_batch``; here the two
threads of a worker are the subject: whatever the heart does while a task runs, each task runs once,
here or elsewhere, and its outcome is where the word says that it is.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import pytest

from workpool import accumulator, layout, protocol
from workpool.arena import Region, in_lines
from workpool.context import LARGE_NBYTES, TaskKind
from workpool.contributions import Contributions, contribute
from workpool.layout import NOTHING, STRIDE, Extent, Geometry
from workpool.members.leases import LEAST_LEASE_S, Heart
from workpool.protocol import State
from workpool.repository import TAKERS, Claim, Claimant, Publisher, Row
from workpool.serializer import APART, CONTRIBUTES, Kind, Packed
from workpool.testing import MemoryWindow
from workpool.whole import held
from workpool.worker.attempts import Attempts, Runners
from workpool.worker.batch import BatchRun, Outcomes
from workpool.worker.exchange import Exchange
from workpool.worker.runner import Evicted

TASKS = 40
CALL = "pool", TaskKind.CALL, 7  # what a runner must know of them


class Runner:
    """Tasks that note that they ran; short ones, however busy this machine is."""

    def __init__(self) -> None:
        self.short_ns = 10**12
        self.contributions = Contributions()
        self.ran: list[int] = []
        self.during: Callable[[int], object] = lambda n: None
        self.ahead: list[int] = []  # sent, and not asked for
        self.retracts = True

    def call(self, pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, bytes]:
        assert (pool, kind, code_id) == CALL
        n = payload[0]
        if self.ahead:
            assert self.ahead.pop(0) == n
        self.ran.append(n)
        self.during(n)
        return Kind.VALUE, payload

    def send_ahead(self, pool: str, kind: int, code_id: int, payloads: Collection[bytes]) -> None:
        assert (pool, kind, code_id) == CALL
        assert not self.ahead
        self.ahead = [payload[0] for payload in payloads]

    def failure(self, error: BaseException) -> bytes:
        return str(error).encode()

    def retract(self) -> bool:
        if self.retracts:
            self.ahead = []
        return self.retracts


class Scene:
    """A row of several tasks that is claimed, and what its submitter sees of it."""

    def __init__(self, room: int = 1 << 16, tasks: int = TASKS) -> None:
        self.geometry = Geometry(4, 2, 1 << 20)
        self.window = MemoryWindow(self.geometry.nbytes)
        self.publisher = Publisher(self.window, self.geometry, 0)
        self.claimant = Claimant(self.window, self.geometry, 1, TAKERS["pointer"](self.window, 1))
        record = layout.write_descriptor(
            layout.Descriptor(0, 0, *layout.NO_BLOB, *layout.NO_BLOB, *NOTHING, tasks)
        )
        self.publisher.publish([record])
        (offer,) = self.claimant.take(1)  # type: ignore[misc]
        claim = self.claimant.claim(offer)
        assert isinstance(claim, Claim)
        self.claim = claim
        extent = Extent(self.geometry.region(1).offset, room) if room else NOTHING
        payloads = [bytes([n]) for n in range(tasks)]
        self.runner = Runner()
        self.ran = self.runner.ran
        self.batch = BatchRun(
            self.window, self.claimant, claim, payloads, Outcomes(extent), self.runner, CALL
        )

    @property
    def word(self) -> int:
        return self.window.load(self.geometry.word(0))

    def run(self, during: Callable[[int], object] = lambda n: None) -> list[int]:
        """Run the tasks; return those whose outcomes are to be committed."""
        self.runner.during = during
        self.batch.run()
        outcomes = self.batch.outcomes
        assert not self.runner.ahead, "sent, and neither asked for nor taken back"
        content = memoryview(b"".join(outcomes.entries))
        assert len(content) == outcomes.nbytes
        return [bytes(outcome[2])[0] for outcome in layout.read_task_outcomes(content)]

    def said(self) -> list[int]:
        """Return the tasks whose outcomes are in the window, as the word says."""
        count = layout.ended_of(self.word)
        if not count:
            return []
        place = layout.read_place(self.publisher.read_record(0))
        content = bytearray(place.nbytes)
        self.window.get(place.offset, content)
        self.window.flush()
        return [
            bytes(outcome[2])[0]
            for outcome in layout.read_task_outcomes(memoryview(content), count)
        ]


def test_strides_cost_a_step_for_many_tasks() -> None:
    scene = Scene()
    words = []
    assert scene.run(lambda n: words.append(scene.word)) == list(range(TASKS))
    assert scene.ran == list(range(TASKS))
    steps = len(set(words))
    assert steps == 1 + -(-(TASKS - 1) // STRIDE), f"{steps} steps for {TASKS} tasks"


def test_long_tasks_are_started_one_by_one() -> None:
    scene = Scene()
    scene.runner.short_ns = 50_000
    started = []

    def seen(n: int) -> None:
        time.sleep(1e-3)
        started.append(layout.started_of(scene.word))

    assert scene.run(seen) == list(range(TASKS))
    assert started == list(range(1, TASKS + 1))


@pytest.mark.parametrize("lasting", range(TASKS))
def test_what_waits_behind_a_task_that_lasts_is_given_back(lasting: int) -> None:
    scene = Scene()

    def during(n: int) -> None:
        if n == lasting:
            strided = layout.is_stride(scene.word)
            scene.batch.watch()
            assert layout.is_stride(scene.word) == strided, "given back at the first look"
            scene.batch.watch()
            assert not layout.is_stride(scene.word)
            assert layout.is_recalled(scene.word) == strided
            if strided:
                assert scene.said() == list(range(n))
                assert layout.started_of(scene.word) == n + 1

    ended = scene.run(during)
    assert ended == scene.ran == list(range(len(ended)))
    assert len(ended) == (TASKS if lasting == 0 else lasting + 1)


def test_what_was_said_is_put_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The submitter may be reading it: MPI leaves open what it finds where a put is under way."""
    scene, puts = Scene(), list[tuple[int, int]]()
    put = scene.window.put

    def noted(disp: int, buffer: bytes) -> None:
        puts.append((disp, len(buffer)))
        put(disp, buffer)

    monkeypatch.setattr(scene.window, "put", noted)
    assert scene.run(lambda n: scene.batch.give_back() if n == 4 else None) == [0, 1, 2, 3, 4]
    place = scene.batch.outcomes.place
    outcomes = sorted(where for where in puts if place.offset <= where[0] < place.end)
    assert sum(nbytes for _, nbytes in outcomes) == scene.batch.outcomes.nbytes
    neighbours = itertools.pairwise(outcomes)
    assert all(disp + nbytes <= after for (disp, nbytes), (after, _) in neighbours)


def test_what_has_begun_elsewhere_is_not_given_back() -> None:
    """A child process may be ahead of its worker, which has not seen what it has done."""
    scene = Scene()
    scene.runner.retracts = False

    def during(n: int) -> None:
        if n == 3:
            scene.batch.give_back()
            assert layout.is_stride(scene.word)

    assert scene.run(during) == scene.ran == list(range(TASKS))


def test_the_submitter_recalls_and_then_is_given_back_more() -> None:
    scene = Scene()

    def during(n: int) -> None:
        if n == 3:
            word = scene.publisher.recall(Row(0, scene.word))
            assert word is not None
            assert layout.started_of(word) == 1 + STRIDE
            scene.batch.give_back()
            word = scene.publisher.recall(Row(0, scene.word))
            assert word is not None
            assert layout.started_of(word) == 4
            assert scene.said() == [0, 1, 2]

    assert scene.run(during) == scene.ran == [0, 1, 2, 3]


@pytest.mark.parametrize("gives_back", [False, True])
def test_an_attempt_that_was_taken_back_is_given_up(gives_back: bool) -> None:
    scene = Scene()

    def during(n: int) -> None:
        if n == 3:
            assert scene.publisher.reclaim(Row(0, scene.word))
            if gives_back:
                scene.batch.give_back()
            assert layout.state_of(scene.word) == State.EVICTED, "its worker lets go, nobody else"

    with pytest.raises(Evicted):
        scene.run(during)
    assert layout.state_of(scene.word) == State.FREE
    assert scene.ran == ([0, 1, 2, 3] if gives_back else list(range(1 + STRIDE)))


def attempts_of(scene: Scene) -> tuple[Attempts, Region]:
    """Return what runs the tasks of a scene, and its part of the arena."""
    exchange = Exchange(scene.window, scene.claimant, scene.geometry.region(1))
    runners, heart = Runners(1, "here"), Heart(lambda: None)
    attempts = Attempts(runners, heart, scene.window, scene.geometry, scene.claimant, exchange)
    return attempts, exchange.region


@pytest.mark.parametrize("large_nbytes", [0, 1000])
def test_an_attempt_that_was_taken_back_keeps_no_room(large_nbytes: int) -> None:
    scene = Scene()
    attempts, region = attempts_of(scene)
    attempts._large_nbytes = large_nbytes
    free_nbytes: list[int] = []

    def during(n: int) -> None:
        free_nbytes.append(region.free_nbytes)
        if n == 3:
            assert scene.publisher.reclaim(Row(0, scene.word))

    scene.runner.during = during
    with pytest.raises(Evicted):
        attempts._run_batch(scene.claim, scene.runner, CALL, [bytes([n]) for n in range(TASKS)])
    assert region.stretch.nbytes - free_nbytes[0] > TASKS * large_nbytes
    assert free_nbytes[0] < region.free_nbytes == region.stretch.nbytes


@pytest.mark.parametrize("retracts", [True, False])
@pytest.mark.parametrize("room", [0, 24, 216, 292, 392])
def test_no_room_for_the_outcomes(room: int, retracts: bool) -> None:
    """What has no room goes elsewhere, all of it, and the heart leaves that alone."""
    scene = Scene(room)
    scene.runner.retracts = retracts
    ended = scene.run(lambda n: scene.batch.give_back() if n == 4 else None)
    assert ended == scene.ran == list(range(len(ended)))
    assert len(ended) <= 1 + room // layout.WORD_NBYTES + (0 if retracts else STRIDE)
    assert protocol.advance(scene.claim.word, protocol.Step.COMPLETE)


def test_what_has_no_room_is_said_later_if_something_lasts() -> None:
    """What runs in a child process may have begun before its worker knew that room is short."""
    room = 2 * len(layout.write_task_outcome(0, 0, bytes(1))) + STRIDE * len(
        layout.write_task_outcome(0, 0, b"")
    )
    scene = Scene(room)

    def during(n: int) -> None:
        scene.runner.retracts = n == 5  # until then the next one has begun each time
        if n == 5:
            scene.batch.give_back()
            assert layout.is_recalled(scene.word)
            assert layout.started_of(scene.word) == 6
            place = layout.read_place(scene.publisher.read_record(0))
            content = bytearray(place.nbytes)
            scene.window.get(place.offset, content)
            scene.window.flush()
            said = layout.read_task_outcomes(memoryview(content), layout.ended_of(scene.word))
            assert [kind for kind, _, _ in said] == [0] + [CONTRIBUTES] * 4, "passed over"

    assert scene.run(during) == scene.ran == list(range(6))


def test_a_result_that_cannot_be_copied_fails_its_task() -> None:
    class Large(Packed):
        def tobytes(self) -> bytes:
            raise MemoryError("no room for a copy")

    scene = Scene(tasks=3)
    call = scene.runner.call

    def call_one(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Any]:
        called = call(pool, kind, code_id, payload)
        return (Kind.VALUE, Large(b"", [])) if payload[0] == 1 else called

    scene.runner.call = call_one  # type: ignore[method-assign]
    scene.batch.run()
    content = memoryview(b"".join(scene.batch.outcomes.entries))
    assert [(kind, bytes(value)) for kind, _, value in layout.read_task_outcomes(content)] == [
        (Kind.VALUE, b"\0"),
        (Kind.EXCEPTION, b"no room for a copy"),
        (Kind.VALUE, b"\2"),
    ]


def run_large(scene: Scene, sizes: list[int]) -> list[tuple[int, bytes]]:
    """Run tasks whose results are so large; return kind and result of each that has ended."""

    def call(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Any]:
        n = payload[0]
        scene.ran.append(n)
        content = bytes([n]) * sizes[n]
        return Kind.VALUE, content if n % 2 else Packed([content])

    scene.runner.call = call  # type: ignore[method-assign]
    scene.batch.run()
    found = []
    entries = memoryview(b"".join(scene.batch.outcomes.entries))
    for kind, _, content in layout.read_task_outcomes(entries):
        if kind & APART:
            extent = layout.read_extent(content)
            whole, place = scene.batch.outcomes.extent, scene.batch.outcomes.place
            assert place.end <= extent.offset <= extent.end <= whole.end
            content = memoryview(bytearray(extent.nbytes))
            scene.window.get(extent.offset, content)
            scene.window.flush()
        found.append((kind, bytes(content)))
    return found


def test_large_outcomes_lie_apart() -> None:
    sizes = [LARGE_NBYTES + 10, LARGE_NBYTES + 1, 10, LARGE_NBYTES, LARGE_NBYTES + 100]
    scene = Scene(tasks=len(sizes))
    large_nbytes = 4 * in_lines(LARGE_NBYTES + 200)
    extent = Extent(scene.geometry.region(1).offset, 2 * LARGE_NBYTES + large_nbytes)
    outcomes = scene.batch.outcomes = Outcomes(extent, large_nbytes)
    found = run_large(scene, sizes)
    assert [bool(kind & APART) for kind, _ in found] == [True, True, False, False, True]
    assert [content[-1] for _, content in found] == list(range(5))
    assert outcomes.nbytes <= outcomes.room
    assert outcomes.small_nbytes == outcomes.nbytes
    assert outcomes.large_nbytes >= sizes[0] + sizes[1] + sizes[4]
    assert found[4][1].endswith(bytes([4]) * sizes[4])


def test_a_large_outcome_without_room_goes_where_all_the_others_go() -> None:
    """And those that lie apart stay there."""
    scene = Scene(tasks=5)
    large_nbytes = in_lines(LARGE_NBYTES + 200)
    extent = Extent(scene.geometry.region(1).offset, LARGE_NBYTES + large_nbytes)
    outcomes = scene.batch.outcomes = Outcomes(extent, large_nbytes)
    found = run_large(scene, [LARGE_NBYTES + 1] * 5)
    assert [bool(kind & APART) for kind, _ in found] == [True, False]
    assert [content[-1] for _, content in found] == [0, 1]
    assert outcomes.nbytes > outcomes.room
    assert outcomes.small_nbytes < 200


def test_the_next_row_has_room_for_outcomes_as_large_as_the_last_ones() -> None:
    scene = Scene()
    attempts, region = attempts_of(scene)
    attempts._large_nbytes = LARGE_NBYTES + 1
    outcomes = attempts._room(3)
    found = [outcomes.reserve(LARGE_NBYTES + 1) for _ in range(4)]
    assert [extent is not None for extent in found] == [True] * 3 + [False]
    while (extent := outcomes.reserve(1)) is not None:
        found.append(extent)
    assert all(extent.end <= outcomes.extent.end for extent in found if extent is not None)
    assert outcomes.place.nbytes + 3 * in_lines(LARGE_NBYTES + 1) == region.used_nbytes
    region.release(outcomes.extent)
    share = attempts._exchange.share
    outcomes = attempts._room(100)
    assert region.used_nbytes <= share < region.used_nbytes + layout.LINE_NBYTES
    assert outcomes.room > 0
    attempts._outcome_nbytes = share
    assert attempts._room(1).extent is NOTHING


def test_what_a_task_adds_does_not_count_without_its_result() -> None:
    class Large(Packed):
        def tobytes(self) -> bytes:
            raise MemoryError("no room for a copy")

    scene = Scene(tasks=3)
    contributions = scene.runner.contributions
    spec = accumulator.spec_of((), "int64", "sum")._replace(offset=scene.geometry.nbytes - 8)

    def call(pool: str, kind: int, code_id: int, payload: bytes) -> tuple[Kind, Any]:
        contributions.add(spec, np.array(10 ** payload[0]))
        return Kind.VALUE, Large(b"", []) if payload[0] == 1 else payload

    scene.runner.call = call  # type: ignore[method-assign]
    scene.batch.run()
    entries = memoryview(b"".join(scene.batch.outcomes.entries))
    kinds = [kind for kind, _, _ in layout.read_task_outcomes(entries)]
    assert kinds == [Kind.VALUE | CONTRIBUTES, Kind.EXCEPTION, Kind.VALUE | CONTRIBUTES]
    contribute(contributions.total(), scene.window)
    assert scene.window.memory.word(spec.offset) == 101


def test_nothing_is_given_back_when_all_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The word has no number for a task behind the last that a row may have."""
    scene = Scene(tasks=layout.MAX_TASKS)
    genuine = BatchRun._next

    def late(self: BatchRun, stride: bool) -> bool:
        if len(self.outcomes.entries) == layout.MAX_TASKS:
            self.give_back()
        return genuine(self, stride)

    monkeypatch.setattr(BatchRun, "_next", late)
    assert scene.run() == list(range(layout.MAX_TASKS))
    assert not layout.is_recalled(scene.word)
    assert layout.owner_of(scene.word) == 1


def test_nothing_is_given_back_that_has_run_when_the_rest_was_recalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A heart that has waited for its turn comes between the last stride and the row's end.

    The submitter would have seven tasks run again, and what they add to accumulators counted twice.
    """
    scene = Scene()
    genuine = BatchRun._next

    def then_the_heart(self: BatchRun, stride: bool) -> bool:
        more = genuine(self, stride)
        if not more:
            self.give_back()
        return more

    def during(n: int) -> None:
        if n == 3:
            assert scene.publisher.recall(Row(0, scene.word)) is not None

    monkeypatch.setattr(BatchRun, "_next", then_the_heart)
    ended = scene.run(during)
    assert ended == scene.ran == list(range(1 + STRIDE))
    assert layout.started_of(scene.word) == len(ended)


@pytest.fixture
def restless() -> Iterator[None]:
    """Have threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_the_heart_gives_back_at_any_moment() -> None:
    """Two threads, and nothing but chance: each task runs here, or is given back."""
    partial = 0
    for seed in itertools.count():
        if seed >= 200 and (partial or seed == 10_000):
            break
        scene = Scene()
        stop = threading.Event()
        holds: list[bool] = []

        def beat(scene: Scene = scene, stop: threading.Event = stop, seed: int = seed) -> None:
            time.sleep(seed * 2e-6)
            while not stop.is_set():
                scene.batch.give_back()

        def ask(n: int, scene: Scene = scene, holds: list[bool] = holds) -> None:
            holds.append(scene.batch.holds())

        heart = threading.Thread(target=beat)
        heart.start()
        try:
            ended = scene.run(ask)
        finally:
            stop.set()
            heart.join()
        assert ended == scene.ran == list(range(len(ended)))
        assert all(holds)
        assert scene.said() == ended[: layout.ended_of(scene.word)]
        assert layout.is_recalled(scene.word) or len(ended) == TASKS
        partial += len(ended) < TASKS
    assert partial


def test_who_asks_while_the_heart_gives_back_still_holds_its_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The word is loaded, the heart changes it, and only then it is compared with the claim's."""
    scene = Scene()
    held: list[bool] = []
    load = MemoryWindow.load

    def slow(window: MemoryWindow, disp: int) -> int:
        word = load(window, disp)
        heart = threading.Thread(target=scene.batch.give_back)
        heart.start()
        heart.join(0.05)  # it may have to wait for us
        hearts.append(heart)
        return word

    hearts: list[threading.Thread] = []

    def during(n: int) -> None:
        if n == 3:
            monkeypatch.setattr(MemoryWindow, "load", slow)
            held.append(scene.batch.holds())
            monkeypatch.setattr(MemoryWindow, "load", load)
            for heart in hearts:
                heart.join()
            held.append(scene.batch.holds())

    assert scene.run(during) == scene.ran == [0, 1, 2, 3], "the heart gave the others back"
    assert held == [True, True]
    assert scene.said() == [0, 1, 2]


def test_who_hurries_the_heart_while_it_looks_is_heard() -> None:
    looks: list[int] = []

    def look() -> bool:
        looks.append(1)
        if len(looks) == 1:
            heart.hurry()
        return False

    heart = Heart(lambda: None, look)
    heart.start()
    try:
        heart.hurry()
        limit = time.monotonic() + 10
        while len(looks) < 2:
            assert time.monotonic() < limit
            time.sleep(1e-3)
    finally:
        heart.stop()


def test_the_heart_watches_while_there_is_something() -> None:
    def look() -> bool:
        if len(looks) == 5:
            enough.set()
            return False
        # And a finalizer that comes here must not wait for a task.
        looks.append(heart.still.locked() and held(sys._getframe()))
        return True

    beats, looks = [], []
    enough = threading.Event()
    heart = Heart(lambda: beats.append(heart.still.locked()), look)
    heart.keep(LEAST_LEASE_S)
    heart.start()
    try:
        time.sleep(0.15)
        assert not looks
        for _ in range(2):
            heart.hurry()
            assert enough.wait(10)
            enough.clear()
            assert all(looks)
            looks.clear()
            time.sleep(0.05)
            assert not looks, "nobody has asked for it"
    finally:
        heart.stop()
    assert beats
    assert all(beats), "while somebody else may take away what it beats for"
