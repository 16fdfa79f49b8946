"""The questions: those of AMPLab and LEADS about few rows, and some of which an index is of no use."""

from __future__ import annotations

from dataclasses import dataclass

from bench.select.rows import OF_A_DATE, SPARE, Filled

DATES, RANKS, IDS, NONE = "visitDate", "pageRank", "visitId", ""


@dataclass(frozen=True, slots=True)
class Question:
    """sql: over the tables `rankings` and `visits`.

    index: the column whose index finds the rows, "" where it does not pay. is_even: whether the rows that it
    selects are equally many at all sizes. is_flat: whether the time must then be the same, too: the index has
    all columns of the statement, or the rows lie together.
    """

    name: str
    sql: str
    index: str
    is_even: bool = True
    is_flat: bool = True


def questions(filled: Filled, turn: int) -> list[Question]:
    """All questions, in the order of the report; in each turn about other values."""
    day = 3 * turn
    first, second, half = (f"DATE '{filled.date(day + one)}'" for one in range(3))
    days = f"visitDate BETWEEN {first} AND {second}"
    visit = (filled.rows // 2 + turn * OF_A_DATE) % filled.rows
    ids = f"visitId BETWEEN {visit} AND {visit + OF_A_DATE - 1}"
    rank = filled.rank + turn % 5
    revenue = filled.revenues[SPARE - turn % 5]
    dates = f"visitDate IN ({first}, {second})"
    own = "sourceIP, destURL, adRevenue"
    sums = "sum(adRevenue) AS revenue"
    joined, by_in = (
        f"SELECT sourceIP, {sums}, avg(pageRank) AS rank FROM visits JOIN rankings ON destURL = pageURL "
        f"WHERE visits.{where} GROUP BY sourceIP ORDER BY revenue DESC, sourceIP LIMIT 1"
        for where in (days, dates)
    )
    page = f"SELECT pageURL, pageRank FROM rankings JOIN visits ON destURL = pageURL WHERE visitId = {visit}"
    return [
        Question("Q4: one rank", f"SELECT pageURL, pageRank FROM rankings WHERE pageRank = {rank}", RANKS),
        Question("Q5: one date", f"SELECT {own} FROM visits WHERE visitDate = {first}", DATES),
        Question(
            "Q6: ranks X to X + 5",
            f"SELECT pageURL, pageRank FROM rankings WHERE pageRank BETWEEN {rank} AND {rank + 5}",
            RANKS,
            False,
        ),
        Question("Q7: two dates", f"SELECT {own} FROM visits WHERE {days}", DATES),
        Question("two dates, IN", f"SELECT {own} FROM visits WHERE {dates}", DATES),
        Question(
            "one date, AND",
            f"SELECT {own} FROM visits WHERE visitDate = {first} AND adRevenue < 500000.0",
            DATES,
        ),
        Question("Q8: join, two dates", joined, DATES, is_flat=False),
        Question("Q8: join, two dates, IN", by_in, DATES, is_flat=False),
        Question("join of one visit", page, IDS, is_flat=False),
        Question(
            "Q9: two dates by address",
            f"SELECT substr(sourceIP, 1, 8) AS part, {sums} FROM visits WHERE {days} GROUP BY part",
            DATES,
        ),
        Question(
            "0.001 % of the visits, by revenue",
            f"SELECT visitId, adRevenue FROM visits WHERE adRevenue >= {revenue}",
            "adRevenue",
            is_even=False,
        ),
        Question(
            "one date, not covered",
            f"SELECT {own}, searchWord FROM visits WHERE visitDate = {first}",
            DATES,
            is_flat=False,
        ),
        Question(
            "400 visits that lie together",
            f"SELECT {own}, searchWord FROM visits WHERE {ids}",
            IDS,
        ),
        Question(
            "Q1: ranks above 10", "SELECT pageURL, pageRank FROM rankings WHERE pageRank > 10", NONE, False
        ),
        Question(
            "half of the visits",
            f"SELECT count(*) AS visits, {sums} FROM visits WHERE visitDate >= {half}",
            NONE,
            is_even=False,
        ),
        Question(
            "half of the visits, by country",
            f"SELECT countryCode, {sums} FROM visits WHERE visitDate < {half} GROUP BY countryCode",
            NONE,
            is_even=False,
        ),
    ]
