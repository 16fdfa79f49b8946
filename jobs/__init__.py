"""Jobs and commands: each parses its arguments, calls the other packages and prints the result.

The rooms, from the lowest floor to the highest:

    cli, spark        options, the table of commands, exit codes, signals; Spark's session, its Java and jars
    ask, create, demo, inputs, secret, sql, verify
                      the commands that ask; a new warehouse; the demo; files as rows; secrets and tokens;
                      what clients of the SQL server may do; every invariant, checked. sql is hard: its
                      lists decide what a stranger may run
    remove_rows       rows leave, or are corrected: the commands, and the feeds that `load` takes
    alter, copy_warehouse, load_batch, maintain, pagerank, repair, serve
    site_reduce, sql_server, stream_events
                      a job each; serve answers over HTTP
"""
