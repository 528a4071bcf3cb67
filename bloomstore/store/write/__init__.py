"""The roads of a key into a filter: plan, commit, set bits, acknowledge.

    plan.py             which keys are new to a stage, and its counts after them
    counts.py           set bits and keys of a stage, as a writer must know them
    commit.py           journal rows, then bits, then the word `applied`
    growth.py           the next stage of a chain
    writer.py           the general road: plan and commit until all keys are in
    single_commit.py    the ordinary durable add, one transaction for one or several filters
    batch.py            keys collected for one commit at the end of a block
    batch_blocks.py     which batch an add belongs to
    group_commit.py     threads that wait for a durable add share one commit
    stage_in_memory.py  a stage built in private memory and written as one file
    bulk_load.py        many keys at once, without a journal
    coming_chain.py     a rebuild: a new chain beside the live one
    copying.py          a coming chain copied from another filter, bit by bit

A key takes one of these roads. Every one of them runs under the writer lock; "at once" means that
the lock is taken without waiting, "kept" that its flock stays taken for the next add.

    call                             lock     commit                             file
    add, `process`, nothing unusual  kept     none: bits in the shared mapping   kernels, OneKey.add
    add or add_many, `process`       kept     `dirty` once per checkpoint        writer.py
    add or add_many, `commit`        at once  one journal row, 1 transaction     single_commit.py
      ... something unusual          waits    finish others' work, then one      group_commit.py,
                                              journal row per stage and step     writer.py
      ... several threads wait       waits    one transaction for all of them    group_commit.py
    batch() over one or more filters at once  a row per filter, 1 transaction    single_commit.py
      ... something unusual          waits    finish, then one transaction       batch.py
    add_many of 2^20 keys or more    waits    a new file per stage, no journal   bulk_load.py
    add_many of a Rebuild            waits    as add_many, coming chain only     coming_chain.py
    feed of a Rebuild                at keep  a new file now and then            coming_chain.py
    copy of another filter           waits    a new file per stage               copying.py

During a rebuild every other road adds to the live chain and to the coming one. All roads but two
hold the lock through durable/holding.py, which first finishes the work of a dead holder. The two:
the kernels' road, whose process has kept the lock since, and single_commit.py, which takes another
road if it finds anything unfinished.
"""
