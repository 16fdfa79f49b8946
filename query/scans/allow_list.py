"""The allow lists of expressions.py: the nodes, types and functions that an expression may consist of.

The names of nodes are those of DuckDB's parse tree as JSON. Everything that is not listed is refused,
including features of later versions of DuckDB. The functions depend on nothing but their arguments, and no
result is much longer than the arguments: `repeat`, `lpad` and `replace` are left out, because calls of them
inside each other need exponential memory.
"""

from __future__ import annotations


def _names(text: str, *phrases: str) -> frozenset[str]:
    """The words of a text, and the phrases."""
    return frozenset((*text.split(), *phrases))


COMPARISONS = _names("""
    COMPARE_EQUAL COMPARE_NOTEQUAL COMPARE_LESSTHAN COMPARE_GREATERTHAN COMPARE_LESSTHANOREQUALTO
    COMPARE_GREATERTHANOREQUALTO COMPARE_DISTINCT_FROM COMPARE_NOT_DISTINCT_FROM
""")
CONJUNCTIONS = frozenset({"CONJUNCTION_AND", "CONJUNCTION_OR"})
OPERATORS = _names("""
    COMPARE_IN COMPARE_NOT_IN OPERATOR_NOT OPERATOR_IS_NULL OPERATOR_IS_NOT_NULL OPERATOR_COALESCE
""")
LITERALS = frozenset({"INTEGER", "NUMERIC", "STRING", "BOOLEAN", "NULL_LITERAL", "HEX"})
# The types of casts, in upper case; DECIMAL and NUMERIC may have digits and scale.
TYPES = _names(
    """
    BOOLEAN BOOL TINYINT SMALLINT INTEGER INT BIGINT LONG HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT
    FLOAT REAL DOUBLE DECIMAL NUMERIC VARCHAR TEXT STRING CHAR BLOB BINARY VARBINARY DATE TIMESTAMP DATETIME
    TIMESTAMPTZ INTERVAL
""",
    "TIMESTAMP WITH TIME ZONE",
)
SIZED_TYPES = frozenset({"DECIMAL", "NUMERIC"})
MATCHES = _names("~~ !~~ ~~* !~~*")  # LIKE and ILIKE: any text has an answer
OPERATOR_FUNCTIONS = _names("""
    + - * / // % ** ^ & | << >> ~ @ || ^@ ~~ !~~ ~~* !~~* ~~~ like_escape ilike_escape not_like_escape
    not_ilike_escape
""")
NAMED_FUNCTIONS = _names("""
    abs acos add asin atan atan2 bit_count cbrt ceil ceiling char_length character_length concat contains cos
    cot date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth
    dayofweek dayofyear degrees divide ends_with epoch epoch_ms epoch_us even exp floor gcd greatest hour
    instr isfinite isinf isnan isodow isoyear last_day lcase lcm least left len length ln log log10 log2 lower
    ltrim make_date microsecond millisecond minute mod month monthname multiply octet_length pi position pow
    power prefix quarter radians regexp_extract regexp_full_match regexp_matches reverse right round rtrim
    second sign sin sqrt starts_with strip_accents strlen strpos substr substring subtract suffix tan
    time_bucket timezone to_days to_hours to_microseconds to_milliseconds to_minutes to_months to_quarters
    to_seconds to_weeks to_years translate trim trunc ucase upper week weekday weekofyear xor year yearweek
""")
FUNCTIONS = OPERATOR_FUNCTIONS | NAMED_FUNCTIONS

# What a refused node is, for errors, by its class in the parse tree.
NODES = {
    "COLLATE": "COLLATE",
    "DEFAULT": "DEFAULT",
    "LAMBDA": "a lambda",
    "PARAMETER": "a parameter such as ? or $1",
    "POSITIONAL_REFERENCE": "a reference such as #1",
    "STAR": "a star",
    "SUBQUERY": "a subquery",
    "TYPE": "a type",
    "WINDOW": "a window function",
}
ALLOWED = (
    "An expression may consist of constants, columns, comparisons, arithmetic, AND, OR, NOT, IN, BETWEEN, "
    "LIKE, ILIKE, SIMILAR TO, IS NULL, COALESCE, CASE WHEN, INTERVAL, casts to plain types ("
    + ", ".join(sorted(TYPES))
    + ") and these functions: "
    + ", ".join(sorted(NAMED_FUNCTIONS))
    + "."
)
