"""Any step of the protocol, by the function that takes it."""

from __future__ import annotations

from workpool import protocol
from workpool.protocol import Step


def after(word: int, step: Step) -> int:
    """Return a word after a step; of batches, the next task starts with one more outcome."""
    if step is Step.NEXT:
        return protocol.next_tasks(word, 1, stride=False)
    if step is Step.RECALL:
        return protocol.recall(word)
    if step is Step.GIVE_BACK:
        return protocol.give_back(word, 0)
    return protocol.advance(word, step)
