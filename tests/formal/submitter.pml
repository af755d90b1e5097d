/* The submitter: workpool/repository/publisher.py and workpool/driver/published.py. */

#define LOWEST(set)     ((set) & -(set))
#define NEXT_TASKS      (BATCH == 1 -> LOWEST(todo) : todo)

/* Whether there is something to do about a row. */
#define ASKS(n)                                                                                 \
    ((STATE(word[n]) == FREE && todo && !NOBODY_LIVES)                                          \
    || (STATE(word[n]) == RESERVED && OWNER(word[n]) != me && me == 0                           \
        && (hasty || dead[OWNER(word[n])]))                                                     \
    || (STATE(word[n]) == EVICTED && me == 0 && dead[OWNER(word[n])]                            \
        && (!place[OWNER(word[n])] || BUG == BURIED_EARLY))                                     \
    || (held[n]                                                                                 \
        && ((STATE(word[n]) == READY && (cancels || NOBODY_LIVES))                              \
        || (RUNS(word[n]) && (suspicions || kills || dead[OWNER(word[n])]))                     \
        || (STATE(word[n]) == CLAIMED && (RECALLABLE(n, word[n]) || GIVEN(n, word[n])))         \
        || (STATE(word[n]) == COMMITTED && dead[OWNER(word[n])])                                \
        || STATE(word[n]) == WANTED || STATE(word[n]) == OFFERED || STATE(word[n]) == DONE)))
#define BOTH(n)           (held[n] & (held[n] - 1))
#define RECALLABLE(n, w)  (recalls && !RECALLED(w) && BOTH(n))
#define GIVEN(n, w)       (STRIDES && RECALLED(w) && !STRIDE(w) && BOTH(n) && !(held[n] & got))

inline end(tasks, set) {
    must("a task ends twice", ((tasks) & (collected | voided)) == 0);
    set = set | (tasks)
}

inline publish() {
    atomic {
        swap(RESERVE, r, w, w);
        if
        :: found == w || BUG == RESERVE_IGNORED -> w = AFTER(RESERVE, w)
        :: else -> goto looked
        fi;
        tasks = NEXT_TASKS;
        if
        :: word[r] == w -> submitter_of[r] = me; tasks_of[r] = tasks
        :: else
        fi
    }
    put(AT(DESCRIPTOR_OF, r), tasks);
    UNLESS(PUBLISH_UNFLUSHED, flush());
    atomic {
        swap(PUBLISH, r, w, w);
        if
        :: found == w || BUG == PUBLISH_IGNORED ->
            todo = todo & ~tasks; held[r] = tasks; goto looked
        :: else
        fi
    }
    if
    :: STATE(found) == EVICTED && OWNER(found) == me ->
        w = found; swap(LET_GO, r, w, w)        /* taken for dead; our put has landed */
    :: else
    fi
}

inline collect() {
    d_step {
        must("another outcome", record[r] == RECORD(OUTCOME, w));
        must("another task ran", RAN_BOTH(w) == (BOTH(r) != 0) || (STRIDES && RECALLED(w)));
        if
        :: BOTH(r) && !RAN_BOTH(w) ->           /* given back, and not seen until now */
            todo = todo | (held[r] & ~LOWEST(held[r])); held[r] = LOWEST(held[r])
        :: else
        fi;
        must("DONE before it is counted",
            !CONTRIBUTES || (held[r] & settled) || number[INDEX(held[r])] == 1);
        end(held[r] & ~got, collected);
        got = got & ~held[r]; held[r] = 0
    }
}

/* The first of two tasks has ended: its outcome is there. */
inline read_first() {
    must("another first outcome", first[r] == RECORD(OUTCOME, w));
    tasks = LOWEST(held[r])
}

/* Void an attempt, and try its tasks again, or not. */
inline take_back(again) {
    tasks = 0;
    if
    :: ONE_ENDED(w) && !(held[r] & got) -> read_first()
    :: else
    fi;
    atomic {
        swap(RECLAIM, r, w, FRESH_RECLAIM);
        if
        :: found == w || BUG == RECLAIM_IGNORED || BUG == RECLAIM_FRESH ->
            end(tasks, collected);
            lost = held[r] & ~(tasks | got);
            got = got & ~held[r]; held[r] = 0;
#if BUG == FREED_AT_ONCE
            w = AFTER(RECLAIM, w); swap(LET_GO, r, w, w)
#endif
        :: else
        fi;
        todo = todo | (lost * again);
        end(lost * (1 - again), voided);
        goto looked
    }
}

inline take_in() {
    if
    :: STRIDE(w)                                /* both are started, and may be given back */
    :: !STRIDE(w) && ONE_ENDED(w) && BUG != RECALL_FORGETFUL ->
        d_step { read_first(); end(tasks, collected); got = got | tasks }
    :: else ->
        d_step { tasks = LOWEST(held[r]); todo = todo | (held[r] & ~tasks); held[r] = tasks }
    fi
}

inline recall_second() {
    do
    :: swap(RECALL, r, w, w);
       if
       :: found == w -> break
       :: found != w && STATE(found) == CLAIMED ->      /* its owner has started the second, */
            w = found;
            if :: RECALLED(w) -> break :: else fi       /* or given it back */
       :: else -> goto looked
       fi
    od;
    take_in()
}

inline answer(s) {
    must("another request", record[r] == RECORD(REQUEST, w));
    if
    :: s == SUPPLY ->
        put(AT(RECORD_OF, r), RECORD(ANSWER, w));
        UNLESS(ANSWER_UNFLUSHED, flush())
    :: else
    fi;
    atomic { swap(s, r, w, w); goto looked }
}

proctype submitter(byte me; byte todo) {
    byte r, tasks, lost, got;
    byte held[ROWS];                            /* tasks whose outcomes a row shall bring */
    short w, found;
    {
    do
    :: atomic {                                 /* the words are looked at */
            if
            :: ASKS(0) -> r = 0
#if ROWS > 1
            :: ASKS(1) -> r = 1
#endif
            fi;
            w = word[r]
       }
       if
       :: STATE(w) == FREE -> publish()
       :: STATE(w) == RESERVED ->
            atomic {
                if :: dead[OWNER(w)] :: else -> hasty-- fi;
                swap(ABANDON, r, w, w); goto looked
            }
       :: STATE(w) == READY ->
            atomic {
                if :: NOBODY_LIVES :: else -> cancels-- fi;
                swap(CANCEL, r, w, w);
                if
                :: found == w || BUG == CANCEL_IGNORED -> end(held[r], voided); held[r] = 0
                :: else
                fi;
                goto looked
            }
       :: STATE(w) == WANTED -> answer(SUPPLY)
       :: STATE(w) == OFFERED -> answer(TAKE)
       :: STATE(w) == CLAIMED && RECALLABLE(r, w) -> recalls--; recall_second()
       :: STATE(w) == CLAIMED && GIVEN(r, w) -> take_in()
       :: RUNS(w) && dead[OWNER(w)] -> take_back(true)
       :: RUNS(w) && suspicions -> suspicions--; take_back(true)
       :: RUNS(w) && kills -> kills--; take_back(false)
       :: STATE(w) == COMMITTED && BUG == RECLAIM_COMMITTED -> take_back(true)
       :: STATE(w) == COMMITTED && BUG != RECLAIM_COMMITTED ->
            atomic {                            /* what it contributed is uncertain from now on */
                swap(SETTLE, r, w, w);
                if :: found == w -> settled = settled | held[r] :: else fi;
                goto looked
            }
       :: STATE(w) == DONE ->
            collect();
            atomic { swap(RETIRE, r, w, w); must("not ours to retire", found == w); goto looked }
       :: STATE(w) == EVICTED ->                /* nothing of the dead can land any more */
            atomic { swap(LET_GO, r, w, w); goto looked }
       fi;
looked:
       atomic { r = 0; w = 0; found = 0; tasks = 0; lost = 0 }
    :: d_step { todo && NOBODY_LIVES -> end(todo, voided); todo = 0 }
    :: todo == 0 && held[0] == 0 && held[ROWS - 1] == 0 -> break
    od
    } unless { dead[me] }
}
