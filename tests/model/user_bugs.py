"""What whoever uses the repository could get wrong, as edits of the model's own processes."""

from __future__ import annotations

from .bugs import Bug
from .submitter import Submitter
from .worker import Worker

_PIECES = r"task . reads the payload b'\\x00"
_LONG = {"tasks": 1, "how": "pieces", "count": 3, "workers": 1}

USER_BUGS = {
    "a payload that is read and not asked for": Bug(
        Worker,
        "_deliver",
        [('self.how != "pieces" and not self.claimant.holds(claim)', "False")],
        {"tasks": 2, "room": 1, "suspicions": 1, "stays": {1: 1}},
        "task 0 reads the payload b'payload.x01'",
    ),
    "a piece of a payload where the last one is read": Bug(
        Submitter,
        "_supply",
        [("place = half(self.buffer, number)", "place = half(self.buffer, 0)")],
        _LONG,
        _PIECES,
    ),
    "the last piece said to be read before it is": Bug(
        Worker,
        "_take_piece",
        [
            ("if last or self._want(claim, end):", "if self._want(claim, end):"),
            ("        if last:\n            self._want(claim, end)\n", ""),
        ],
        {"tasks": 2, "how": "pieces"},
        _PIECES,
    ),
    "a piece of an outcome where the last one is read": Bug(
        Worker,
        "_write_piece",
        [("half(self.result, number).offset", "half(self.result, 0).offset")],
        _LONG,
        "the outcome of task 0, ticket 0, owner . reads",
    ),
    "a result's extent released at once": Bug(
        Worker,
        "_commit",
        [("self.named.append((claim, extent))\n", "pass\n"), ("self.result = None\n", "pass\n")],
        {"tasks": 2, "how": "extent", "workers": 1},
        "the outcome of task ., ticket ., owner 1 reads",
    ),
    "a row retired before its outcome is read": Bug(
        Submitter,
        "_serve",
        [
            (
                "self._take_outcome(window, prepared.task, seen)\n"
                "        self.publisher.retire([seen])\n",
                "self.publisher.retire([seen])\n"
                "        self._take_outcome(window, prepared.task, seen)\n",
            )
        ],
        {"tasks": 2, "how": "extent", "workers": 1},
        "the outcome of task ., ticket ., owner 1 reads",
    ),
    "a contribution before the commit": Bug(
        Worker,
        "_commit",
        [
            (
                "if self.claimant.commit(claim, record):\n",
                'window.accumulate(cell(self.shape, task), np.ones(1, np.int64), "sum")\n'
                "        window.flush()\n"
                "        if self.claimant.commit(claim, record):\n",
            )
        ],
        {"tasks": 1, "suspicions": 1, "how": "commit"},
        "contributed twice",
    ),
    "a contribution that is not flushed": Bug(
        Worker,
        "_commit",
        [("window.flush()\n", "pass\n")],
        {"tasks": 1, "how": "commit", "workers": 1},
        "task 0 is DONE before it is counted",
    ),
}
