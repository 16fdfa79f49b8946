"""Reads of blocks of run files, what they cost, and the windows of questions.

windows, asked_window, modes
                 the arguments that all questions have
costs            what each way to an answer is estimated to cost
spending         what the question of a thread has read, and how long it may take
shared_fields    the fields of answers about what was read
block_reader, row_ranges, live_cache
                 blocks of runs, and live rows in memory
sorted_parts, merged_parts, number_parts, row_counts, shares
                 numbers of many groups and windows
connections, checked_files, duckdb_errors, sql_text
                 DuckDB: its connections, the files it reads, its errors, texts for it
"""
