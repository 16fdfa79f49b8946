"""Companions: sketches of your own, or other mergeable summaries, of one column in ledger and history.

kinds       the kinds that users register in each process: a new sketch needs `register_companion` alone
declared    which column of a warehouse is summarised with which kind
cells       the stored summary of a tick, or of a range of ticks
"""
