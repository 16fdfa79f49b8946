"""Alerts: conditions on answers, which are asked again and again, and what to tell when their state changes.

condition      the text of a condition, parsed: one or more comparisons
reading        what a comparison's question answers now, as intervals by group
state_file     the states and the undelivered notices of an alert on disk
alert          the states of the groups, and the notices of their changes
"""
