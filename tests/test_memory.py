"""Memory that is received in: where it begins, what its pages cost, and how it is used again."""

from __future__ import annotations

import ctypes
import gc
import mmap
import pickle
import platform
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest

from workpool import layout
from workpool.system.memory import (
    LONG_NBYTES,
    Spares,
    _mincore,
    empty,
    keep_freed,
    populate,
    spares,
)

NBYTES = 1 << 19


def test_long_memory_begins_on_a_cache_line() -> None:
    several = [empty(LONG_NBYTES + n) for n in range(10)]
    assert [len(memory) - LONG_NBYTES for memory in several] == list(range(10))
    assert not any(np.asarray(memory).ctypes.data % layout.LINE_NBYTES for memory in several)


def test_pages_that_are_asked_for_together_cost_no_faults() -> None:
    pages = 1024

    def faults(asked: bool) -> int:
        with mmap.mmap(-1, pages * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
            block.madvise(mmap.MADV_NOHUGEPAGE)
            memory = np.frombuffer(block, np.uint8)
            if asked:
                populate(memory.ctypes.data + 1, memory.nbytes - 1)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            memory[:: mmap.PAGESIZE] = 1
            after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            del memory
            return after - before

    assert faults(asked=False) >= pages
    if tuple(map(int, platform.release().split(".")[:2])) >= (5, 14):
        assert faults(asked=True) < pages / 10
    for address in (4096, 4097, 8191):
        populate(address, 4095)  # no whole page, or one that is not ours


@pytest.fixture
def some() -> Iterator[Spares]:
    """Give spares of up to eight blocks."""
    some = Spares()
    some.most_nbytes = 8 * NBYTES
    yield some
    some.clear()


def address(memory: memoryview) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def test_a_block_is_used_again_when_the_last_view_of_it_is_gone(some: Spares) -> None:
    memory = some.take(NBYTES)
    first = address(memory)
    assert first % layout.LINE_NBYTES == 0
    view = np.frombuffer(memory[8:16], np.float64)[:1]
    del memory
    other = some.take(NBYTES)
    assert address(other) != first
    view[:] = 1.0
    del view
    assert address(some.take(NBYTES)) == first
    assert address(some.take(NBYTES - 100)) == first, "sizes that hardly differ"
    assert len(other) == NBYTES


VIEWS: dict[str, Callable[[memoryview], Any]] = {
    "bytes": lambda memory: memory[16:24],
    "numbers": lambda memory: memory.cast("d")[2:3],
    "array": lambda memory: np.asarray(memory)[16:24],
    "array of its owner": lambda memory: np.asarray(memory.obj)[16:24][:4],
    "part of an array": lambda memory: np.frombuffer(memory, np.float64)[2:4][:1],
    "array by its interface": lambda memory: np.ndarray(1, np.float64, memory, 16),
    "restored": lambda memory: restored(memory).reshape(-1)[2:3],
    "restored, in Fortran's order": lambda memory: restored(memory, "F").T[0, 2:3],
    "of another type": lambda memory: restored(memory).view(np.recarray)[2:3],
    "masked": lambda memory: np.ma.masked_array(restored(memory).reshape(-1)[2:3]),
}


def restored(memory: memoryview, order: Literal["C", "F"] = "C") -> Any:
    """Return an array that lies in some memory, as what is received is made."""
    array = np.zeros((8, 4), order=order)
    pickled = pickle.dumps(array, 5, buffer_callback=lambda buffer: None)
    return pickle.loads(pickled, buffers=[memory[: array.nbytes]])


@pytest.mark.parametrize("kind", VIEWS)
def test_whatever_lies_in_a_block_keeps_it(some: Spares, kind: str) -> None:
    memory = some.take(NBYTES)
    first = address(memory)
    view = VIEWS[kind](memory)
    del memory
    gc.collect()
    others = [some.take(NBYTES) for _ in range(5)]
    assert first not in map(address, others)
    del view
    gc.collect()
    assert address(some.take(NBYTES)) == first


class Cycle:
    """Has a view, and saves it when it is collected."""

    def __init__(self, view: Any, saved: list[Any]) -> None:
        self.view, self.saved, self.myself = view, saved, self

    def __del__(self) -> None:
        self.saved.append(self.view)


def test_what_a_finalizer_saves_is_in_use(some: Spares) -> None:
    saved: list[Any] = []
    memory = some.take(NBYTES)
    first = address(memory)
    Cycle(memory, saved)
    del memory
    gc.collect()
    assert len(saved) == 1
    assert address(some.take(NBYTES)) != first
    saved.clear()
    assert address(some.take(NBYTES)) == first


def test_what_is_in_use_is_never_handed_out_again(some: Spares) -> None:
    kept: list[memoryview] = []
    for n in range(200):
        memory = some.take(NBYTES - n % 7 * 40_000)
        memory[:8] = n.to_bytes(8, "little")
        kept.append(memory)
        if n % 3 == 0:
            del kept[n % len(kept)]
    numbers = [int.from_bytes(memory[:8], "little") for memory in kept]
    assert len(set(numbers)) == len(kept)


def test_spares_are_bounded_with_all_that_are_in_use(some: Spares) -> None:
    def free() -> int:
        return sum(block.nbytes for blocks in some._free.values() for block in blocks)

    many = [some.take(NBYTES) for _ in range(20)]
    assert len(some._used) == 8
    many.clear()
    larger = some.take(4 * NBYTES)
    assert free() == 4 * NBYTES, "others have made room"
    assert some._nbytes == some.most_nbytes
    assert not some.take(some.most_nbytes + 1).readonly
    assert len(some._used) == 1
    del larger
    some.clear()
    assert [some._nbytes, len(some._free), len(some._used), len(some._ended)] == [0, 0, 0, 0]


@pytest.fixture
def small_pages() -> Iterator[None]:
    """Keep the system from making large pages, in the background, of the few that are left."""
    prctl, disable = ctypes.CDLL(None).prctl, 41
    prctl(disable, 1, 0, 0, 0)
    yield
    prctl(disable, 0, 0, 0, 0)


@pytest.mark.usefixtures("small_pages")
def test_pages_go_back_to_the_system_also_from_amidst_of_others() -> None:
    def there() -> int:
        """Return how many pages of the blocks there are: none of what the heap has lost."""
        found = ctypes.create_string_buffer(1)
        return sum(
            not _mincore(page, mmap.PAGESIZE, found) and found.raw != b"\0"
            for place in places
            for page in range(place, place + (1 << 22), mmap.PAGESIZE)
        )

    keep_freed(1 << 27)  # which has blocks of this size come from the heap
    blocks, others, places = [], [], []
    for _ in range(16):
        blocks.append(spares.take(1 << 22))
        blocks[-1][:] = bytes(1 << 22)
        others.append(bytes(1 << 16))
        places.append(np.frombuffer(blocks[-1], np.uint8).ctypes.data & -mmap.PAGESIZE)
    before = there()
    assert before == 16 * (1 << 22) // mmap.PAGESIZE
    blocks.clear()
    spares.clear()
    spares.most_nbytes = 0
    assert there() < before / 2  # the system may have made large pages of some nevertheless


def test_a_view_that_outlives_its_pool_goes_back_to_malloc(some: Spares) -> None:
    memory = some.take(NBYTES)
    some.clear()
    del memory
    gc.collect()
    assert not some._ended


def test_what_another_thread_is_about_to_take_is_waited_for(some: Spares) -> None:
    memory = some.take(NBYTES)
    del memory
    taking = threading.Event()

    def take() -> None:
        with some._lock:
            taking.set()
            time.sleep(0.01)

    thread = threading.Thread(target=take)
    thread.start()
    taking.wait()
    some.clear()
    thread.join()
    assert not some._nbytes


def test_who_comes_from_the_midst_of_it_does_without(some: Spares) -> None:
    with some._lock:
        memory = some.take(NBYTES)
        some.clear()
    assert len(memory) == NBYTES
    assert not some._used


def test_threads_never_share_a_block(some: Spares) -> None:
    def work(number: int) -> None:
        for _ in range(300):
            memory = some.take(NBYTES)
            memory[:8] = number.to_bytes(8, "little")
            for _ in range(20):
                if int.from_bytes(memory[:8], "little") != number:
                    shared.append(number)

    shared: list[int] = []
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not shared


def test_only_long_memory_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares, "most_nbytes", 1 << 24)
    several = [empty(n) for n in (LONG_NBYTES - 1, LONG_NBYTES, 1 << 25)]
    assert [len(memory) for memory in several] == [LONG_NBYTES - 1, LONG_NBYTES, 1 << 25]
    assert len(spares._used) == 1
    spares.clear()
