"""The worker's half of a table: rows are claimed, run, and completed.

    worker        claim, run, complete: the steps
    attempts      what a claimed row turns into: a batch, a turn, an isolated task
    commits       what becomes of its outcome: recorded, committed, contributed
    batch         the tasks of one row, started in order
    ranges        a turn in a range of items, chunk by chunk
    exchange      payloads and outcomes through the arena, in pieces where there is no room
    runner        calls, in this process; what pools have in common stays here
    isolation     calls in a child process
    child         what that process runs

The other half is ``workpool.driver``.
"""
