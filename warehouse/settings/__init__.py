"""The options of a warehouse, and the features of its format.

A further option is a row of tidemark/option_table.py, which says how it is checked, and a field of `Options`
in options.py. If it can be changed later, it is also a keyword of warehouse/alter.py.

options           the options of one warehouse, as values
option_kinds      what kinds of values there are: how they are parsed, checked and stored
allowed_columns   which columns and folders options may name

given_options     what callers give: how it is looked up, for all options alike
properties        what `events` stores: how it is read, for all options alike
alterations, renames
                  how `alter` changes options: what is added, dropped, gets another value or another name
equal_options     what must be equal in warehouses that are asked together
features          what only newer versions can read
"""
