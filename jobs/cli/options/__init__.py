"""The options of the jobs and of the command `tidemark`; each is declared once.

Commands share parts of their options, so the options of a command are a tuple of parts. `add` adds the parts
to a parser. The parsed namespace keeps that parser as `parser`, so that a usage error found later is reported
with the right usage line. The flags of a warehouse's own options follow from tidemark/option_table.py. No
module imported here reads a warehouse: help and completion stay fast.
"""
