/* What is in a case, each by -D, and the bugs that can be planted in it. */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef TASKS
#define TASKS 2
#endif
#ifndef ROWS
#define ROWS 1                  /* 1 or 2 */
#endif
#ifndef BATCH
#define BATCH 1                 /* tasks of a row: 1 or 2 */
#endif
#ifndef STRIDES
#define STRIDES 0               /* whether both are started at once, and given back */
#endif
#ifndef SECOND
#define SECOND 0                /* tasks, of them, that a second submitter publishes */
#endif
#ifndef PIECES
#define PIECES 0                /* whether payload and outcome travel in pieces */
#endif
#ifndef CONTRIBUTES
#define CONTRIBUTES 0           /* whether a task adds to a number */
#endif
#ifndef CRASHES
#define CRASHES 0               /* so many members die: workers, or the second submitter */
#endif
#ifndef SUSPICIONS
#define SUSPICIONS 0            /* so often a living worker is taken for dead */
#endif
#ifndef HASTY
#define HASTY 0                 /* so often a living publisher is */
#endif
#ifndef CANCELS
#define CANCELS 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef RECALLS
#define RECALLS 0
#endif
#ifndef BLIND
#define BLIND 0
#endif
#ifndef BUG
#define BUG 0
#endif

/* --- bugs to plant, by -DBUG=name ------------------------------------------------------------ */

#define PUBLISH_UNFLUSHED       1
#define REQUEST_UNFLUSHED       2
#define ANSWER_UNFLUSHED        3
#define TASK_UNFLUSHED          4
#define OUTCOME_UNFLUSHED       5
#define CONTRIBUTION_UNFLUSHED  6
#define CONTRIBUTION_FIRST      7       /* before the commit is won */
#define DESCRIPTOR_FIRST        8       /* read before READY is seen */
#define RESERVE_IGNORED         9       /* a lost compare-and-swap is taken for won */
#define PUBLISH_IGNORED        10
#define CLAIM_IGNORED          11
#define CANCEL_IGNORED         12
#define RECLAIM_IGNORED        13
#define EVICTION_IGNORED       14       /* nobody lets go of the row */
#define NEXT_FRESH             15       /* compares with a fresh load, not with what is held */
#define COMPLETE_FRESH         16
#define RECLAIM_FRESH          17
#define RECLAIM_COMMITTED      18       /* a dead owner's commit is not respected */
#define FREED_AT_ONCE          19       /* a row is free before its former owner lets go of it */
#define LET_GO_UNFLUSHED       20
#define BURIED_EARLY           21       /* while a put of the dead may still land */
#define RECALL_FORGETFUL       22       /* counts what was started when it looked */
#define GIVE_BACK_UNFLUSHED    23
#define GIVE_BACK_FRESH        24

/* What two of them compare with. */
#if BUG == COMPLETE_FRESH
#define FRESH_COMPLETE word[r]
#else
#define FRESH_COMPLETE w
#endif
#if BUG == RECLAIM_FRESH
#define FRESH_RECLAIM word[r]
#else
#define FRESH_RECLAIM w
#endif
