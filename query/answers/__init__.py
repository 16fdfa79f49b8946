"""Answers as immutable values with certified bounds; their text, HTML and JSON.

all_answers       the fields of all answers, and how one is added
measure_answers, summary_answer, extreme_answer
                  answers about measures
key_answers, distinct_answers, persistence_answers
                  answers about keys
companion_answer, info
                  the summary of a window; the facts of warehouse/snapshots/facts.py, printed
plan              how an answer, or a statement of SQL, was found
by_site           what each of several warehouses has for an answer
answer_columns    many answers as columns; no place for a field
one_value, flat_rows, rendering
                  forms of answers: one number; rows for charts; text and HTML
"""
