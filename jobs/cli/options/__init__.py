"""The options of the jobs and of the command `tidemark`; each is declared once.

Commands share parts of their options, so the options of a command are a tuple of parts. `add` adds the parts
to a parser. The parsed namespace keeps that parser as `parser`, so that a usage error found later is reported
with the right usage line. The flags of a warehouse's own options follow from tidemark/option_table.py. No
module imported here reads a warehouse: help and completion stay fast.

parts        what options are made of
shared       options that commands of several kinds have
loading      create, load, stream
changing     alter, unload, delete, correct, expire, restore, repair, copy, maintain
asking       info, history, quantile, rank ... and their pictures
asking_keys  frequency, top, hitters ... and their picture
watching     watch, alert, pagerank
serving      sql-server, serve, token, sites, completion
parsed       the meaning of a parsed command line
"""
