"""The parts of `verify`; warehouse/verify.py lists all checks, and compares kappa with runs/levels.py.

pinned_tables     all tables, each at one version
run_checks        history: rows, marks and counts of runs
ledger_checks     the live side: nested ranges, and the bounds of summaries
companion_checks, removal_checks, file_checks
                  cells of companions; records of removals; sizes and seals of files
"""
