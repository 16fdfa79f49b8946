"""Delta tables in one folder: read without a JVM, committed by compare-and-swap, vacuumed.

addresses, store  where a warehouse is, and the options of its store
files             its files: near_files on a disk (containment), far_files in an object store: it chooses
                  object_client or delta-rs
object_client, s3_options
                  one request for an object; S3 alone so far, other stores go through delta-rs
served_files, served_client, served_ranges
                  its files behind `tidemark serve`
retries, round_trips, disk_cache, write_behind, probe
                  requests to a store: made again, sent together, kept; uploads; the test of a store
tables, table_open, table_names, table_facts, idle_tables, data_files
                  tables: opened, read, kept open, and their files
changes, commits, races, lost_races, own_files
                  a commit: what it changes, whether it was done, planned anew after a lost race; how
                  many races were lost; files of this writer
log_files, log_replica, log_versions, log_nesting, log_repair, metadata_watch
                  the logs of tables
retention, vacuum, fences, clock
                  old files and entries of logs: how long they are kept, and when they are deleted
"""
