"""The processes of one job: who drives, who serves, how tables open and close, how it all ends.

    entry         what this process is in its job
    runtime       the driver's hold on it: workers, pools, the end
    tables        those that are open, and their drivers
    deaths        what the driver does about them in a job that outlives its workers
    crew          collective steps without a collective call to wait in
    control       the words by which the driver gives orders
    service       a rank that serves
    threads       the attendant; the worker of a job of one rank
    drain         SIGTERM: what runs ends and is stored
    survival      what every rank of a job that outlives its workers does

Above it is what a program sees, ``workpool.pool``; below it the two halves of a table.
"""
