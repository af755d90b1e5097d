"""Memory that is received in: where it begins, what its pages cost, and how it is used again."""

from __future__ import annotations

import ctypes
import errno
import gc
import itertools
import mmap
import os
import pickle
import platform
import resource
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest

from workpool.extents import LINE_NBYTES
from workpool.serializer.values import encode
from workpool.system import pages
from workpool.system.memory import LONG_NBYTES, empty, keep_freed
from workpool.system.pages import LARGE_PAGE_NBYTES, Mapped, _mincore, is_there, populate
from workpool.system.shared_memory import unmappable
from workpool.system.spares import EASE_S, HEAD_NBYTES, SLAB_NBYTES, Spares, spares

NBYTES = 1 << 19


def test_long_memory_begins_on_a_cache_line() -> None:
    several = [empty(LONG_NBYTES + n) for n in range(10)]
    assert [len(memory) - LONG_NBYTES for memory in several] == list(range(10))
    assert not any(np.asarray(memory).ctypes.data % LINE_NBYTES for memory in several)


def faults(memory: memoryview) -> int:
    """Return how many it takes to write to each page."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_pages_that_are_asked_for_together_cost_no_faults() -> None:
    pages = 1024

    def block() -> memoryview:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        pages_apart = mmap.mmap(-1, pages * mmap.PAGESIZE, private)
        pages_apart.madvise(mmap.MADV_NOHUGEPAGE)
        return memoryview(pages_apart)

    assert faults(block()) >= pages
    if tuple(map(int, platform.release().split(".")[:2])) >= (5, 14):
        asked = block()
        populate(np.asarray(asked).ctypes.data + 1, asked.nbytes - 1)
        assert faults(asked) < pages / 10
    for address in (4096, 4097, 8191):
        populate(address, 4095)  # no whole page, or one that is not ours
    assert is_there(0), "not ours"


def test_who_looks_what_can_be_mapped_gives_it_back() -> None:
    gc.collect()  # which may close some that earlier tests have left
    descriptors = len(os.listdir("/proc/self/fd"))
    assert unmappable(1 << 20, 8, private=True) == unmappable(0, 8, private=False) == ""
    assert unmappable(1 << 60, 8, private=True) == os.strerror(errno.ENOMEM)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("slow_s", [1.0, -1.0], ids=["quick", "slow"])
def test_large_pages_are_asked_for_until_one_is_slow(
    monkeypatch: pytest.MonkeyPatch, slow_s: float
) -> None:
    monkeypatch.setattr(Mapped, "large_pages", True)
    monkeypatch.setattr(pages, "LARGE_PAGE_S", slow_s)
    mapped = Mapped(4 * LARGE_PAGE_NBYTES)
    first = address(mapped.bytes)
    assert first % LARGE_PAGE_NBYTES == 0
    mapped.populate(1 << 16, 2 * LARGE_PAGE_NBYTES)
    assert Mapped.large_pages == (slow_s > 0)
    assert faults(mapped.bytes[1 << 17 : 2 * LARGE_PAGE_NBYTES]) < 10
    last = first + 3 * LARGE_PAGE_NBYTES - mmap.PAGESIZE
    if not is_there(first):  # no large pages on this machine
        assert not is_there(last)
    else:
        assert is_there(last) == (slow_s > 0), "a large page has all of it"


@pytest.fixture
def some() -> Iterator[Spares]:
    """Give spares of up to two slabs."""
    some = Spares()
    some.most_nbytes = 2 * SLAB_NBYTES
    yield some
    some.clear()


def address(memory: memoryview) -> int:
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def test_a_block_is_used_again_when_the_last_view_of_it_is_gone(some: Spares) -> None:
    memory = some.take(NBYTES)
    first = address(memory)
    assert first % LINE_NBYTES == 0
    view = np.frombuffer(memory[8:16], np.float64)[:1]
    del memory
    other = some.take(NBYTES)
    assert address(other) != first
    view[:] = 1.0
    del view
    assert address(some.take(NBYTES)) == first
    assert address(some.take(NBYTES - 100)) == first, "sizes that hardly differ"
    assert len(other) == NBYTES


@pytest.mark.parametrize("nbytes", [1 << 16, 100_000, 1 << 20, 3 << 20, SLAB_NBYTES])
def test_a_copy_of_an_array_and_its_encoding_have_blocks_of_one_size(
    some: Spares, nbytes: int
) -> None:
    array = np.zeros(nbytes // 8)
    copied, encoded = array.nbytes, len(encode((array,)))
    first = address(some.take(copied))
    assert encoded > copied
    assert address(some.take(encoded)) == first
    assert address(some.take(copied)) == first


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
        if memory is None:  # too many are in use
            del kept[:10]
            continue
        memory[:8] = n.to_bytes(8, "little")
        kept.append(memory)
        if n % 3 == 0:
            del kept[n % len(kept)]
    numbers = [int.from_bytes(memory[:8], "little") for memory in kept]
    assert len(set(numbers)) == len(kept)


def test_spares_are_bounded_with_all_that_are_in_use(some: Spares) -> None:
    half = SLAB_NBYTES // 2 - HEAD_NBYTES
    many = [some.take(half) for _ in range(5)]
    assert [memory is None for memory in many] == [False] * 4 + [True]
    assert some.take(some.most_nbytes + 1) is None
    many[1:] = []
    assert some.take(some.most_nbytes) is None, "one is in use"
    many.clear()
    assert some.take(some.most_nbytes), "others have made room"
    assert [slab.nbytes for slab in some._slabs] == [some.most_nbytes]
    full = some.take(some.most_nbytes), some.take(NBYTES)
    assert [memory is None for memory in full] == [False, True]
    some.clear()
    assert not any((some._slabs, some._free, some._used, some._ended))
    assert some.take(NBYTES), "what was refused before may be had now"


def test_blocks_become_larger_and_smaller_ones(some: Spares) -> None:
    some.take((1 << 19) - HEAD_NBYTES)  # and is free: it gives way when there is no other room
    for room in (1 << 16, SLAB_NBYTES // 2, 3 << 16, 1 << 20, 1 << 16):
        nbytes = room - HEAD_NBYTES
        blocks = [some.take(nbytes) for _ in range(2 * (SLAB_NBYTES // room))]
        assert all(blocks), nbytes
        assert some.take(nbytes) is None
        places = sorted(address(memory) for memory in blocks if memory is not None)
        assert all(b - a >= nbytes for a, b in itertools.pairwise(places))
        blocks.clear()


def test_what_is_free_beside_what_is_in_use_may_become_a_larger_block(some: Spares) -> None:
    some.most_nbytes = SLAB_NBYTES
    small = [some.take((1 << 20) - HEAD_NBYTES) for _ in range(16)]
    assert all(small)
    small[:4] = []
    assert some.take((1 << 22) - HEAD_NBYTES)


def test_a_small_block_does_not_keep_a_large_slab(some: Spares) -> None:
    some.most_nbytes = 3 * SLAB_NBYTES
    large = some.take(2 * SLAB_NBYTES - HEAD_NBYTES)
    del large
    small = some.take(1 << 16)
    assert small is not None
    assert sorted(slab.nbytes for slab in some._slabs) == [SLAB_NBYTES, 2 * SLAB_NBYTES]


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


def test_a_slab_goes_back_to_the_system_with_its_last_view(some: Spares) -> None:
    def mapped() -> bool:
        return not _mincore(page, mmap.PAGESIZE, ctypes.create_string_buffer(1))

    memory, other = some.take(NBYTES), some.take(NBYTES)
    some.take(NBYTES)
    some.take(2 * NBYTES)  # and finds that the one before is free
    page = address(memory) // mmap.PAGESIZE * mmap.PAGESIZE
    some.clear()
    del memory
    gc.collect()
    assert mapped()
    del other
    gc.collect()
    assert not mapped()
    assert not some._ended


def test_what_is_not_used_for_a_while_goes_back(some: Spares) -> None:
    def slabs(after_s: float) -> int:
        some.ease(after_s * EASE_S)
        return len(some._slabs)

    half = SLAB_NBYTES // 2 - HEAD_NBYTES
    kept, *others = [some.take(half) for _ in range(3)]
    assert [slabs(1), slabs(2)] == [2, 2], "in use"
    others.clear()
    assert slabs(3) == 2, "in use until now"
    assert slabs(3.9) == 2, "not yet"
    assert slabs(4) == 1
    assert some.take(half), "the other half of what is kept"
    assert len(some._slabs) == 1
    del kept
    for after_s in range(5, 8):
        assert slabs(after_s) == 1, "used meanwhile"
        some.take(half)
    assert [slabs(8), slabs(9)] == [1, 0]
    assert some.take(half)


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
    assert not some._slabs


def test_who_comes_from_the_midst_of_it_does_without(some: Spares) -> None:
    with some._lock:
        assert some.take(NBYTES) is None
        some.clear()
    assert not some._used


def test_threads_never_share_a_block(some: Spares) -> None:
    def work(number: int) -> None:
        for _ in range(300):
            memory = some.take(NBYTES)
            if memory is None:
                continue
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
