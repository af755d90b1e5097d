"""WorkPool keeps the contract of concurrent.futures.Executor; ThreadPoolExecutor is the oracle.

The clauses themselves are the cases of ``tests/cases/contract.py`` and ``accumulate.py``, and of
the modules named after them; each runs once for each number of workers and each way of claiming,
all of a script's cases in one job.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import END_OF_JOB, Batch, case_names

CONTRACT = [*case_names("contract"), END_OF_JOB]
ACCUMULATE = [*case_names("accumulate"), END_OF_JOB]


def selected(request: pytest.FixtureRequest, fixture: str) -> list[str]:
    """Return the cases that this run of pytest wants from the batch of `fixture`."""
    ours = {"workers", "claim"} & set(request.fixturenames)
    wanted = {name: request.getfixturevalue(name) for name in ours}
    items = [item for item in request.session.items if fixture in getattr(item, "fixturenames", ())]
    calls = [item.callspec.params for item in items]  # type: ignore[attr-defined]
    return [call["case"] for call in calls if all(call[name] == wanted[name] for name in ours)]


@pytest.fixture(scope="module")
def oracle(request: pytest.FixtureRequest) -> Iterator[Batch]:
    """Run the contract on the standard library."""
    batch = Batch("contract", selected(request, "oracle"))
    yield batch
    batch.close()


@pytest.fixture(scope="module")
def contract(request: pytest.FixtureRequest, workers: int, claim: str) -> Iterator[Batch]:
    """Run the contract on a WorkPool."""
    batch = Batch("contract", selected(request, "contract"), workers)
    yield batch
    batch.close()


@pytest.fixture(scope="module")
def accumulate(request: pytest.FixtureRequest, workers: int, claim: str) -> Iterator[Batch]:
    """Run the cases of the accumulator."""
    batch = Batch("accumulate", selected(request, "accumulate"), workers)
    yield batch
    batch.close()


@pytest.mark.parametrize("case", CONTRACT)
def test_standard_library(oracle: Batch, case: str) -> None:
    oracle.check(case)


@pytest.mark.mpi
@pytest.mark.parametrize("case", CONTRACT)
def test_workpool(contract: Batch, case: str) -> None:
    contract.check(case)


@pytest.mark.mpi
@pytest.mark.parametrize("case", ACCUMULATE)
def test_accumulator(accumulate: Batch, case: str) -> None:
    accumulate.check(case)
