"""What a program sees: the executor, its views, its futures, its maps.

    executor      WorkPool, run
    options       what they take
    view          one pool with its tasks run otherwise
    hold          what shuts down a pool that nobody has any more
    absent        what a task finds in place of a pool
    maps          its map and reduce: what is shared out, what are tasks of their own
    core          what all views of a pool share
    contexts      what tasks have in common, by limits
    dice          a word to programs whose tasks would all draw the same
    luggage       a word to programs whose functions are heavy
    callbacks     what it has its attendant do
    future        the future whose waiting makes the progress
    resolver      from outcomes to futures
    mapping       items that workers share out
    accumulators  its accumulators, and their room
    stats         what workers have done

All of it runs on the driver, but for ``run`` on the ranks that serve.
"""
