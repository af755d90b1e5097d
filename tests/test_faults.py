"""{crash, exit, raise, hang} at every place that a task passes: each ends, and says how."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from harness import CASES, run_ranks
from launching import run
from processes import PATIENCE

pytestmark = [pytest.mark.mpi, pytest.mark.usefixtures("claim")]

SCRIPT = CASES / "faults.py"
PLACES = ["unpickle arguments", "initializer", "running", "pickle result", "unpickle result"]

#: How long a job may take to end by itself.
LIMIT_S = 10.0 * PATIENCE


def test_in_a_child_process() -> None:
    stdout = run_ranks(3, SCRIPT, "isolated", timeout=90).stdout
    assert len(stdout.splitlines()) == 4 * 4 + 1


def test_what_is_raised_in_the_rank() -> None:
    assert len(run_ranks(3, SCRIPT, "raise").stdout.splitlines()) == 5


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", ["crash", "exit"])
def test_the_rank_itself_ends(place: str, fault: str, tmp_path: Path) -> None:
    with run("-w", "2", str(SCRIPT), place, fault, cwd=tmp_path) as started:
        started.until("begins")
        start = time.monotonic()
        ended = started.wait()
        assert time.monotonic() - start < LIMIT_S
    # Which one it is, is the word of mpiexec: the driver has said nothing.
    assert ended.status not in (0, 130)
    assert "isolate=True" in ended.err


@pytest.mark.parametrize("place", PLACES)
def test_the_rank_itself_hangs_until_somebody_ends_it(place: str, tmp_path: Path) -> None:
    with run("--grace", "8", "-w", "2", str(SCRIPT), place, "hang", cwd=tmp_path) as started:
        started.until("begins")
        time.sleep(0.3)
        started.signal(signal.SIGINT)
        start = time.monotonic()
        ended = started.wait()
        assert time.monotonic() - start < LIMIT_S
    assert ended.status == 130
    assert "KeyboardInterrupt" in ended.err
