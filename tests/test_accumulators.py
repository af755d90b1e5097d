"""What tasks add: checked, combined, made in plain memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from workpool import accumulator
from workpool.accumulator import Accumulators
from workpool.contributions import KEPT_NBYTES, Contributions, combine, contribute, current
from workpool.errors import UsageError, WindowError
from workpool.serializer import split
from workpool.testing import MemoryWindow


def test_numbers_are_read_atomically_while_others_add() -> None:
    window = MemoryWindow(256)
    spec = accumulator.spec_of((4,), "int64", "sum")._replace(offset=64)
    numbers = Accumulators().open(spec, window)
    numbers.add([1, 2, 3, 4])
    assert window.memory.word(64) == 1  # until the flush MPI reads what nobody keeps any more
    window.accumulate(64, np.ones(4, np.int64), "sum")  # under way: there is no flush
    assert numbers.value().tolist() == [2, 3, 4, 5]
    window.accumulate(64, np.ones(4, np.int64), "sum")
    with pytest.raises(WindowError, match="overlaps"):
        window.get(64, bytearray(8))


def test_numbers_are_kept_when_their_room_is_given_to_others() -> None:
    window, opened = MemoryWindow(256), Accumulators()
    spec = accumulator.spec_of((2,), "int64", "sum")._replace(offset=64)
    numbers = opened.open(spec, window)
    numbers.add([1, 2])
    opened.close(spec)
    window.put(64, bytes(16))
    window.flush()
    assert numbers.value().tolist() == [1, 2]
    with pytest.raises(UsageError, match="shut down"):
        numbers.add([1, 2])
    assert isinstance(opened.add({spec: np.ones(2, np.int64)}), UsageError)


def test_who_comes_in_the_middle_of_a_step_is_refused() -> None:
    numbers = Accumulators().open(accumulator.spec_of((), "int64", "sum"), None)
    with numbers._lock:
        for step in (numbers.value, lambda: numbers.add(1)):
            with pytest.raises(RuntimeError, match="in the middle of a step"):
                step()
    numbers.add(1)
    assert isinstance(numbers.value(), np.int64)


@pytest.mark.parametrize(("op", "number"), [("prod", 1e-200), ("sum", 1.7e308)])
def test_what_a_task_wants_of_floating_point_is_not_for_accumulators(
    op: str, number: float
) -> None:
    spec = accumulator.spec_of((), "float64", op)._replace(offset=0)
    contributions = Contributions()
    with np.errstate(all="raise"):
        for _ in range(2):
            contributions.add(spec, np.array(number))
            contributions.keep()
    window = MemoryWindow(256)
    contribute(contributions.total(), window)


def test_what_was_added_is_the_callers_own() -> None:
    """A task may fill one array again and again, and finds in it what it has written."""
    spec = accumulator.spec_of((2,), "float64", "max")._replace(offset=0)
    contributions, workspace = Contributions(), np.array([1.0, np.nan])
    token = current.set(contributions)
    try:
        accumulator.Accumulator(spec).add(workspace)
    finally:
        current.reset(token)
    assert np.isnan(workspace[1])
    workspace[:] = 5
    assert contributions.parts[spec].tolist() == [1, -np.inf]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_no_number_to_a_minimum(dtype: str) -> None:
    for op, best in (("min", 5), ("max", 7)):
        contributions = Contributions()
        token = current.set(contributions)
        try:
            adding = accumulator.Accumulator(accumulator.spec_of(2, dtype, op)._replace(offset=0))
            for numbers in ([5, np.nan], [np.nan, np.nan], [7, np.nan]):
                adding.add(np.array(numbers, dtype))
        finally:
            current.reset(token)
        (part,) = contributions.parts.values()
        assert part[0] == best
        assert np.isinf(part[1])


@pytest.mark.parametrize("dtype", [np.dtype("int64").newbyteorder(), "datetime64[s]", "U1"])
def test_numbers_that_mpi_cannot_add_are_refused(dtype: Any) -> None:
    with pytest.raises(UsageError, match="native byte order"):
        accumulator.spec_of((), dtype, "sum")


def test_integers_that_do_not_fit_are_refused() -> None:
    contributions = Contributions()
    token = current.set(contributions)
    try:
        adding = accumulator.Accumulator(accumulator.spec_of(np.int64(2), "int32", "max"))
        adding.add([1, -(2**31)])
        adding.add(np.array([1, 2], "int8"))
        for numbers in ([3_000_000_000, 1], np.array([0, 2**63], "uint64")):
            with pytest.raises(UsageError, match=r"beyond its dtype|convert it first"):
                adding.add(numbers)
        small = accumulator.Accumulator(accumulator.spec_of((), "uint8", "sum"))
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
        spec = accumulator.spec_of(shape, "int64", "sum")._replace(offset=offset)
        for _ in range(3):
            contributions.add(spec, np.ones(shape, "int64"))
    contributions.keep()
    contribute(contributions.total(), window)
    assert len(lent) == 2
    assert window.memory.word(0) == window.memory.word(64) == 3


@pytest.mark.parametrize("carried", [False, True])
def test_contributions_keep_few_parts_however_many_tasks_there_are(carried: bool) -> None:
    shape = (KEPT_NBYTES // 32,)  # four of them are not too many
    specs = [
        accumulator.spec_of(shape, "int64", op)._replace(offset=offset)
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
        groups = split(contributions.packed())
        assert [group.tasks for group in groups] == [{*range(0, 20, 2)}, {*range(1, 20, 2)}]
        (even, odd), (most,) = (
            [g.parts[spec] for g in groups if spec in g.parts] for spec in specs
        )
        assert (even + odd == 190).all()
        assert (most == 19).all()
        return
    window = MemoryWindow(16 * shape[0])
    contribute(contributions.total(), window)
    assert window.memory.word(0) == window.memory.word(8 * shape[0] - 8) == 190
    assert window.memory.word(8 * shape[0]) == window.memory.word(16 * shape[0] - 8) == 19


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float32", "complex64", "bool"])
@pytest.mark.parametrize("op", accumulator.OPERATIONS)
def test_many_parts_are_combined_as_one_after_another(op: str, dtype: str) -> None:
    if np.dtype(dtype).kind not in accumulator.OPERATIONS[op].kinds:
        with pytest.raises(UsageError, match="MPI defines no such reduction"):
            accumulator.spec_of(3, dtype, op)
        return
    for shape in ((), (3,), (2, 3)):
        spec = accumulator.spec_of(shape, dtype, op)
        numbers = np.arange(1, 50 * (np.prod(shape, dtype=int)) + 1) % 7
        parts = [np.asarray(part) for part in numbers.reshape(-1, *shape).astype(dtype)]
        total = parts[0]
        for part in parts[1:]:
            total = combine(spec, (total, part))
        together = combine(spec, parts)
        assert type(together) is np.ndarray
        assert (together.dtype, together.shape) == (total.dtype, total.shape)
        np.testing.assert_allclose(together, total, rtol=1e-5)


def test_a_part_that_cannot_be_combined_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> NDArray[Any]:
        raise MemoryError

    spec = accumulator.spec_of(KEPT_NBYTES // 8, "int64", "sum")._replace(offset=0)
    contributions = Contributions()
    contributions.add(spec, np.ones(spec.shape, np.int64))
    contributions.keep()
    contributions.task = 1
    contributions.add(spec, np.ones(spec.shape, np.int64))
    with monkeypatch.context() as patch:
        patch.setattr("workpool.contributions.combine", fail)
        with pytest.raises(MemoryError):
            contributions.keep()
    contributions.drop()
    (together,) = split(contributions.packed())
    assert together.tasks == {0}
    assert (together.parts[spec] == 1).all()
