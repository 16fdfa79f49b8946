"""Questions about keys."""

from __future__ import annotations

from bench.daily.question import BY_DAY, HOUR, Question, counts, number_of
from bench.daily.rows import ONE_URL, WEEK, Sizes

_TOP = "ORDER BY 2 DESC, 1 LIMIT 10"
_TOP_OF = (
    "SELECT p, k, n FROM (SELECT {} p, {} k, count(*) n FROM s {} GROUP BY 1, 2) "
    "QUALIFY row_number() OVER (PARTITION BY p ORDER BY n DESC, k) <= 3"
)


def key_questions(sizes: Sizes) -> list[Question]:
    """The questions, in the order of the report."""
    week, user = {"between": WEEK}, sizes.users // 3
    exact = {"mode": "exact"}
    per_user, per_url = (f"SELECT {key}, count(*) FROM s {{}} GROUP BY 1" for key in ("user_id", "url"))
    return [
        Question(
            "rows of one user",
            lambda wh: wh.frequency(user, key="user_id"),
            number_of(),
            f"SELECT count(*) FROM s WHERE user_id = {user}",
        ),
        Question(
            "rows of one user, 7 days",
            lambda wh: wh.frequency(user, key="user_id", **week),
            number_of(),
            f"SELECT count(*) FROM s {{week}} AND user_id = {user}",
        ),
        Question(
            "rows of one url by day",
            lambda wh: wh.frequency(ONE_URL, key="url", every="1d"),
            number_of("start"),
            f"SELECT {BY_DAY}, count(*) FROM s WHERE url = '{ONE_URL}' GROUP BY 1",
        ),
        Question(
            "top 10 users",
            lambda wh: wh.top(10, key="user_id", **exact),
            counts(),
            f"{per_user.format('')} {_TOP}",
            is_heavy=True,
        ),
        Question(
            "top 10 users, 7 days",
            lambda wh: wh.top(10, key="user_id", **exact, **week),
            counts(),
            f"{per_user.format('{week}')} {_TOP}",
        ),
        Question(
            "top 10 urls",
            lambda wh: wh.top(10, key="url", **exact),
            counts(),
            f"{per_url.format('')} {_TOP}",
        ),
        Question(
            "top 10 urls, 7 days",
            lambda wh: wh.top(10, key="url", **exact, **week),
            counts(),
            f"{per_url.format('{week}')} {_TOP}",
        ),
        Question(
            "top 10 users by day",
            lambda wh: wh.top(10, key="user_id", every="1d", **exact),
            counts("start"),
            f"SELECT d, user_id, n FROM (SELECT {BY_DAY} d, user_id, count(*) n FROM s GROUP BY 1, 2) "
            "QUALIFY row_number() OVER (PARTITION BY d ORDER BY n DESC, user_id) <= 10",
            is_heavy=True,
        ),
        Question(
            "top 3 users by region (scan)",
            lambda wh: wh.top(3, key="user_id", by="region"),
            counts("group"),
            _TOP_OF.format("region", "user_id", ""),
        ),
        Question(
            "top 3 urls by hour, 7 days",
            lambda wh: wh.top(3, key="url", every="1h", **exact, **week),
            counts("start"),
            _TOP_OF.format(HOUR, "url", "{week}"),
        ),
        Question(
            "urls with at least 1 % of the rows",
            lambda wh: wh.heavy_hitters(0.01, key="url", **exact),
            counts(),
            "SELECT url, count(*) n FROM s GROUP BY 1 HAVING n >= (SELECT ceil(0.01 * count(*)) FROM s)",
        ),
        Question(
            "users with at least 0.001 % of the rows",
            lambda wh: wh.heavy_hitters(0.00001, key="user_id", **exact),
            counts(),
            "SELECT user_id, count(*) n FROM s GROUP BY 1 "
            "HAVING n >= (SELECT ceil(0.00001 * count(*)) FROM s)",
            is_heavy=True,
        ),
        Question(
            "distinct users",
            lambda wh: wh.distinct(key="user_id", **exact),
            number_of(),
            "SELECT count(DISTINCT user_id) FROM s",
            is_heavy=True,
        ),
        Question(
            "distinct users, 7 days",
            lambda wh: wh.distinct(key="user_id", **exact, **week),
            number_of(),
            "SELECT count(DISTINCT user_id) FROM s {week}",
        ),
        Question(
            "distinct users by day",
            lambda wh: wh.distinct(key="user_id", every="1d", **exact),
            number_of("start"),
            f"SELECT {BY_DAY}, count(DISTINCT user_id) FROM s GROUP BY 1",
            is_heavy=True,
        ),
        Question(
            "distinct urls, 7 days",
            lambda wh: wh.distinct(key="url", **exact, **week),
            number_of(),
            "SELECT count(DISTINCT url) FROM s {week}",
        ),
        Question(
            "distinct users by url (scan)",
            lambda wh: wh.distinct(key="user_id", by="url", limit=10**6),
            number_of("group"),
            "SELECT url, count(DISTINCT user_id) FROM s GROUP BY 1",
        ),
        Question(
            "users seen on 4 of 7 days",
            lambda wh: wh.persistent(4 / 7, slot="1d", key="user_id", **week),
            lambda answers: [(one.value, one.slots) for one in answers],
            f"SELECT user_id, count(DISTINCT {BY_DAY}) n FROM s {{week}} GROUP BY 1 HAVING n >= 4",
            is_heavy=True,
        ),
        Question(
            "self-join of users",
            lambda wh: wh.self_join(key="user_id", **exact),
            number_of(),
            "SELECT sum(n * n)::BIGINT FROM (SELECT count(*) n FROM s GROUP BY user_id)",
            is_heavy=True,
        ),
    ]
