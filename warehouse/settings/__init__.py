"""The options of a warehouse, their kinds, checks and changes, and the features of its format.

tidemark/option_table.py declares each option; options.py has those of one warehouse as values.
"""
