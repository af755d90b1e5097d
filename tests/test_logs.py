"""Who is warned that what tasks log is passed over on the workers."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Iterator

import pytest
from harness import run_ranks
from scripted import define

from workpool.pool.checks import Checks

SCRIPT = """
import logging
log = logging.getLogger("the script's")
quiet = logging.getLogger("the script's.quiet")
quiet.setLevel(logging.WARNING)
def by_logger(): log.info("here")
def by_module(): logging.info("here")
def calls(): return by_logger()
def debugs(): log.debug("here")
def warns(): log.warning("here")
def to_none(): quiet.info("here")
def reads_no_logger(): return [].info
"""


@pytest.fixture
def at_info() -> Iterator[None]:
    root = logging.getLogger()
    handler, level = logging.NullHandler(), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield
    root.removeHandler(handler)
    root.setLevel(level)


def warned(fn: object, apart: bool = True, initializer: object = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checks = Checks(lambda number, comm: False, apart)
        if initializer is not None:
            checks.prepared(initializer)
        for _ in range(2):
            checks.look(fn)
    return [str(each.message).partition(", and")[0] for each in caught]


@pytest.mark.usefixtures("at_info")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("by_logger", "by_logger logs by 'log'"),
        ("by_module", "by_module logs by 'logging'"),
        ("calls", "by_logger logs by 'log'"),
    ],
)
def test_a_function_that_logs_is_named_once(name: str, text: str) -> None:
    script = define(SCRIPT)
    assert warned(getattr(script, name)) == [text]
    assert warned(functools.partial(getattr(script, name))) == [text]


@pytest.mark.usefixtures("at_info")
@pytest.mark.parametrize("name", ["debugs", "warns", "to_none", "reads_no_logger"])
def test_not_of_what_is_shown_nowhere_or_everywhere(name: str) -> None:
    assert warned(getattr(define(SCRIPT), name)) == []


@pytest.mark.usefixtures("at_info")
def test_not_where_the_program_or_an_initializer_has_seen_to_it() -> None:
    script = define(SCRIPT)
    assert warned(script.by_logger, apart=False) == []
    assert warned(script.by_logger, initializer=script.warns) == []


def test_not_where_the_driver_shows_nothing_either() -> None:
    assert warned(define(SCRIPT).by_logger) == []


LOGS = """
    import logging
    from workpool import WorkPool

    logging.basicConfig(level=logging.INFO)
    log = logging.getLogger("app")

    def task():
        log.info("in the task")

    with WorkPool() as pool:
        pool.submit(task).result()
    with WorkPool(initializer=logging.basicConfig) as pool:
        pool.submit(task).result()
"""


@pytest.mark.mpi
@pytest.mark.either
def test_the_line_that_submits_is_named() -> None:
    said = run_ranks(2, LOGS).stderr
    assert said.count("task logs by 'log'") == 1
    assert "driver.py:12: UserWarning" in said


@pytest.mark.mpi
@pytest.mark.either
def test_a_process_by_itself_logs_as_it_was_told() -> None:
    assert run_ranks(1, LOGS).stderr == "INFO:app:in the task\n" * 2
