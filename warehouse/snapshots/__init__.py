"""What a reader sees: history, ledger and live rows at one consistent moment.

snapshot_reader, newest_tables, table_state
                  a look at all tables, in an order that makes the moment consistent; the open tables
                  (near_tables on a disk, far_tables in a store); their versions of one look
behind            tables whose log lacks commits. It and snapshot_reader still look at the tables of dropped
                  measures, which tell of steps that were begun
quiet_logs        whether any table changed, without opening one
snapshot, views, needed
                  one moment; a measure, group, key or the companions in it; what a question needs of it
live_rows, late_summaries, companion_rows, kept_rows
                  rows from `events` where summaries do not do; removed rows that runs still have
past              a moment that is over
sites, open_sites, silent_sites, same_batches
                  several warehouses as one
facts, step_history, system_tables
                  what `info`, `history` and the system tables tell
"""
