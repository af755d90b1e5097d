"""The worker's half of a table: rows are claimed, run, and completed.

    worker        claim, run, complete: the steps
    attempts      fetches what a claimed row needs, and has it run: a task, a batch or a turn
    commits       puts its outcome into the window and commits it, with what it adds
    batch         the tasks of one row, started in order
    ranges        a turn in a range of items, chunk by chunk
    exchange      payloads and outcomes through the arena, in pieces where there is no room
    runner        calls functions in this process
    isolation     has them called in a child process
    child         what that process runs

The other half is ``workpool.driver``.
"""
