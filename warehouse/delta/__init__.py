"""Delta tables in one folder: read without a JVM, committed by compare-and-swap, vacuumed.

addresses, store  where a warehouse is, and the options of its store
files             its files: near_files on a disk (containment), far_files in an object store: it chooses
                  object_client or delta-rs
object_client, s3_options
                  one request for an object, of S3 alone so far: other stores, such as Azure, go through
                  delta-rs. A further store gets a file like s3_options, and far_files chooses it
served_files, served_client, served_ranges
                  its files behind `tidemark serve`
retries           when anything here is tried again: the pauses, for all loops of tries. A count of them would
                  stand here, told by jobs/serve/metrics.py (of its own process), or in the report of a load
                  (loads/history.py). What other processes shall see, races.py notes with its commit in the
                  log, as it does how many races were lost, and lost_race_counter.py reads
round_trips, disk_cache, write_behind, probe
                  requests to a store: sent together, kept; uploads; the test of a store
tables, table_open, table_names, table_facts, idle_tables, data_files
                  tables: opened, read, kept open while nobody uses them (idle_tables), and their files
changes, commits, races, lost_race_counter, own_files
                  a commit: what it changes, whether it was done, planned anew after a lost race; how
                  many races were lost; files of this writer
log_files, log_replica, log_versions, log_nesting, log_repair, metadata_watch
                  the logs of tables
grace, vacuum, fences, clock
                  old files and entries of logs: how long they are kept, and when they are deleted
"""
