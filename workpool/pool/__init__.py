"""What a program sees: the executor, its views, its futures, its maps.

    executor      WorkPool, run
    options       what they take
    view          one pool with its tasks run otherwise
    hold          shuts down a pool that nothing refers to any more
    absent        what a task finds in place of a pool
    elsewhere     what a program finds that calls it by another pool's names
    maps          its map and reduce: which items are shared out, which are tasks of their own
    core          what all views of a pool share
    contexts      what tasks have in common, by limits
    checks        warns of functions that behave otherwise here than in other pools
    callbacks     what the attendant does for it
    future        the future whose waiting makes the progress
    resolver      from outcomes to futures
    mapping       items that workers share out
    accumulators  its accumulators, and their room
    stats         what workers have done

All of it runs on the driver, but for ``run`` on the ranks that serve, and ``absent`` in tasks.
"""
