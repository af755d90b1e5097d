"""Fixtures that several files share: how many workers, how they claim, what they know of code."""

from __future__ import annotations

import pytest

from workpool.serializer import CodeCache


@pytest.fixture(scope="module", params=[0, 1, 2, 4, 8], ids=lambda n: f"{n}w" if n else "alone")
def workers(request: pytest.FixtureRequest) -> int:
    """Give the number of worker ranks; with 0, one rank is driver and worker."""
    return int(request.param)


@pytest.fixture(scope="module", params=["pointer", "counter"])
def claim(request: pytest.FixtureRequest) -> str:
    """Give the way in which workers take tasks."""
    return str(request.param)


@pytest.fixture
def codes() -> CodeCache:
    """Give a memory of code with nothing in it."""
    return CodeCache()
