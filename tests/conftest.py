"""Fixtures that several files share: how many workers, how they claim, what they know of code."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from processes import PATIENCE

import workpool.serializer
from workpool.serializer.code_cache import CodeCache

#: Before each script that runs beside ``peer``.
PRELUDE = """
from peer import Worker
worker = Worker()
run = worker.run

def failure(fn, *args):
    try:
        run(fn, *args)
    except BaseException as error:
        return error
    raise AssertionError("nothing raised")
"""

#: The two ways of taking tasks.
CLAIMS = ("pointer", "counter")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let one MPI run one half of the tests, and another one the other, as CI does."""
    parser.addoption("--half", choices=CLAIMS, help="of the tests; named after how tasks are taken")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have what tests start be ended by a hangup, also where nohup keeps it from the tests.

    And have a test as much longer as what it starts: else the limit of a job, which shows the
    stacks of its ranks, might never be reached.
    """
    if config.option.timeout is None:
        config.option.timeout = PATIENCE * float(config.getini("timeout"))
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda signum, frame: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other half.

    The contract is in both, with any number of workers in one of the two ways of taking tasks.
    What may depend on the MPI is in both, in one of the two ways.  What is marked ``either`` is
    in one of them only.
    """
    half = config.getoption("half")
    if half is None:
        return
    left_out = [item for item in items if _elsewhere(item, half)]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def _elsewhere(item: pytest.Item, half: str) -> bool:
    """Return whether a test is in the other half only."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    other = given.get("claim", half) != half
    if item.get_closest_marker("either"):
        named = item.nodeid
        for claim in CLAIMS:  # the same name in both halves, whatever else is called so
            named = named.replace(claim, "")
        return other or crc32(named.encode()) % 2 != CLAIMS.index(half)
    return other and given.get("workers") != 2


@pytest.fixture(scope="module", params=[0, 1, 2, 5], ids=lambda n: f"{n}w" if n else "alone")
def workers(request: pytest.FixtureRequest) -> int:
    """Give the number of worker ranks; with 0, one rank is driver and worker."""
    return int(request.param)


@pytest.fixture(scope="module", params=CLAIMS)
def claim(request: pytest.FixtureRequest) -> Iterator[str]:
    """Have every job take its tasks in one of the two ways, and name it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORKPOOL_CLAIM", request.param)
        yield request.param


@pytest.fixture
def codes() -> CodeCache:
    """Give a memory of code with nothing in it."""
    return CodeCache()


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Give what makes a stepped pool; in the end nothing may be left of any."""
    from stepped_pool import pools  # which most files do without

    with pools() as make:
        yield make


@pytest.fixture
def make_job() -> Iterator[Callable[..., Any]]:
    """Give what makes a stepped job, of one worker."""
    from stepped import jobs

    with jobs() as make_job:
        yield make_job


@pytest.fixture
def fail_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return what has one call of a function fail; the list that it returns counts the calls."""

    def fail_once(owner: object, name: str, error: BaseException, call: int = 1) -> list[int]:
        genuine, calls = getattr(owner, name), [0]

        def sometimes(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == call:
                raise error
            return genuine(*args, **kwargs)

        monkeypatch.setattr(owner, name, sometimes)
        return calls

    return fail_once


@pytest.fixture
def run_script(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a script next to ``peer`` and checks that it succeeds."""
    shutil.copy(Path(__file__).with_name("peer.py"), tmp_path)
    root = Path(workpool.serializer.__file__).parents[2]
    paths = [str(root), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run_script(body: str, **modules: str) -> subprocess.CompletedProcess[str]:
        for name, source in modules.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))
        script = tmp_path / "script.py"
        script.write_text(PRELUDE + textwrap.dedent(body))
        ended = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended

    return run_script
