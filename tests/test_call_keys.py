"""Which call is which among calls that are equal, in whatever order they are made."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from workpool.context import CALL
from workpool.journal.keys import CallKeys, Occurrences


def test_what_is_rewound_was_never_counted() -> None:
    chance = np.random.default_rng(1)
    counts: dict[int, int] = {}
    occurrences = Occurrences()
    for trial in range(60):
        numbers = chance.integers(0, 40, chance.integers(0, 30)).astype(np.uint64)
        if trial % 3:
            mark = occurrences.mark()
            occurrences.count(numbers)
            occurrences.rewind(mark)
        for number, before in zip(numbers, occurrences.count(numbers), strict=True):
            assert before == counts.get(int(number), 0)
            counts[int(number)] = counts.get(int(number), 0) + 1
        one = int(chance.integers(0, 40))
        assert occurrences.count_one(one) == counts.get(one, 0)
        counts[one] = counts.get(one, 0) + 1


def test_equal_calls_have_the_same_keys_whether_submitted_or_mapped() -> None:
    submits, maps = CallKeys((None, ())), CallKeys((None, ()))
    submitted = [submits.of_call(abs, None, (7,), {}, CALL) for _ in range(3)]
    mapped = [key.tobytes() for key in maps.of_items(abs, None, [7, 7, 7], False)]
    assert submitted == mapped
    assert len(set(mapped)) == 3


def test_calls_made_while_others_are_planned_are_not_forgotten() -> None:
    keys = CallKeys((None, ()))
    counted = threading.Event()

    def call() -> bytes:
        key = keys.of_call(abs, None, (7,), {}, 0)
        counted.set()
        return key

    with ThreadPoolExecutor(1) as other:
        with keys.planning() as forget:
            planned = keys.of_items(abs, None, [7, 8], False)
            one = other.submit(call)
            assert not counted.wait(0.05)  # it waits until it is known how these are sent
            forget()
        first = one.result()
    again = keys.of_items(abs, None, [7, 8], False)
    assert len({first, *(key.tobytes() for key in again)}) == 3
    assert len(planned) == 2
