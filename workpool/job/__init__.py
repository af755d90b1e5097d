"""The processes of one job: who drives, who serves, how tables open and close, how it all ends.

    entry         what this process is in its job
    runtime       the driver's hold on it: workers, pools, the end
    tables        those that are open, and their drivers
    deaths        what the driver does about them in a job that outlives its workers
    crew          collective steps without a collective call to wait in
    alone         the same in a job of one rank, whose worker is a thread
    control       the words by which the driver gives orders
    together      how all ranks meet, and open a table's window
    service       a rank that serves
    attendant     the thread that makes progress when nobody else does
    drain         SIGTERM: what runs ends and is stored
    survival      what every rank of a job that outlives its workers does
    uncaught      an error that ends the program, and how it is shown

Above it is what a program sees, ``workpool.pool``; below it the two halves of a table.
"""
