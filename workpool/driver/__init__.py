"""The driver's half of a table: tasks are published there, and what comes back is sorted out.

    driver        what pools ask of it: submit, take back, keep room
    progress      how it goes on: whoever waits publishes and collects; the lock for all steps
    backlog       what waits, and how it is cut into rows
    dispatcher    when what waits is published, and who is woken for it
    store         payloads, code and contexts in the driver's part of the arena
    segments      which ranges have a counter for their items
    published     the batches that have a row
    collector     what rows that have ended hold
    streams       what goes through the table in pieces
    unresolved    rows that have ended, on their way to futures
    recovery      what becomes of the tasks of workers that are gone
    waits         threads that make progress because they wait
    serving       how they sleep where workers are on other hosts

The other half is ``workpool.worker``.  What becomes of a future is its pool's matter:
``PoolContext.resolve``.
"""
