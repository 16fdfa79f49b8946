"""Alerts: conditions on answers, which are asked again and again, and what to tell when their state changes.

condition      the text of a condition, parsed: one or more comparisons
reading        what a comparison's question answers now, as intervals by group
levels         the thresholds and clear levels of conditions
no_names       private columns: conditions take tokens only
state_file     the states and the undelivered notices of an alert on disk
alert          the states of the groups, and the notices of their changes
of_warehouse   answers of a warehouse, or of several that are open as one

Over sites, each of which looks at its own warehouse:

linear         conditions as sums over sites
places         the exchange of sites and coordinator, and their messages
at_site        a site
over_sites     the coordinator: answers of what sites report
"""
