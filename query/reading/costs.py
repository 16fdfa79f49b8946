"""What the ways to an answer cost, and the choice between them.

A cost is a sum of units of work (windows and runs to bound, keys to look up, rows to go through, statements)
times the microseconds that a unit takes. These rates were measured once, on a machine with two cores. For
each way and topic (rows, groups, keys) a factor is learned: the time that the way took on this machine and
store, divided by the estimate. The first scan about a topic sets the factor of scans. So does the first
answer of another way, if it took more than PATIENCE or was a trial. A way that was stopped counts as taking
the time until it was stopped. Each later answer applies a share of the correction to the factor of its way,
or, if the answer before it erred to the same side, the less of the two corrections. A scan that also had to
compare files with their digests, which is done once in a process, corrects no factor, but it is an answer.

A way is *measured* once it has answered about the topic. The first question is answered by the way with the
least estimate, later ones by the measured way with the least, k. A way that might be faster is *tried* before
it: stopped after b, and then the known way answers. What is the best b?

* The question with the trial takes k + b. If the way was stopped, it takes more than b, so from then on
  questions take at most k / b times as long as by the better way. Whatever b is, one of the two ratios,
  1 + b / k and k / b, is at least 1.618, the golden ratio, at which they are equal.
* There are few trials, so b = (k - SLACK) / TIMES: all questions without a trial take at most TIMES = 1.5
  times as long as by the better way, and SLACK = 5 ms. Those with a trial take at most 5 / 3 * k; up to k =
  50 ms, for which b = k / 2 + SLACK is enough, at most 1.5 * k + SLACK.
* A new way that is estimated to take less than k is tried at once, with b = k. That question takes at most
  twice as long as by the better way, and no rule can promise less if nothing but estimates is known of a way:
  if b is less than k, the way may take a moment more than b (and then a trial of the other kind takes 2.5
  times as long).
* A way that is estimated to take more is never the cheapest, so rates that are too large would never be
  corrected. It is tried if it would be faster with a thirtieth of its estimate (DOUBT): its rates may be ten
  times too large, and its estimate three times too high besides. The first such trial is at the third
  question of a topic, the next ones after twice as many questions each, counted from the last time that the
  way answered. So all of them together cost about log2(questions) times 2 / 3 of a question, and what became
  wrong is corrected. A process with one question tries nothing.
* If a trial is stopped, the estimate is at least b then. In larger questions this may still be much less than
  they allow: where it is less than half, the way is tried once more, after which its factor has doubled.

These bounds hold for ways whose estimates are wrong by constant factors, up to ten, and once factors are
learned, which takes four questions with two ways and six with three: tests draw such worlds, and 1.1 times of
noise. Estimates below SLACK count as SLACK. A question that reads runs (below) takes longer, as do questions
where ways look at their limits seldom.

The first question. A way that has taken more than twice its estimate, and more than the estimate of the next
one, is stopped, and the next one is used (`spending.py`); so is a measured way that takes longer than it used
to. Apart from trials, no way is stopped during its first PATIENCE seconds, because a new process or a busy
machine may need this time for any way, and the way is tried again at the next question. So with two ways the
whole time is about max(2 * estimate of the first way, estimate of the second way, PATIENCE) + the time of the
second way.

Reading whole runs into memory is worth it only if more questions about them follow, which nobody knows. So
each question that another way answers pays for the reading: the difference between the cost of that way and
the cost with runs in memory. The sum paid is taken off the estimate of the runs, so the runs are read when
questions have paid the cost of reading. So all questions together cost at most twice what they would have
cost if their number had been known ("ski rental": Karlin, Manasse, Rudolph and Sleator, Algorithmica 1988).
Runs that had to make room for others in memory are paid for anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from tidemark.query.answers.plan import INDEX, RUNS, SCAN, Way
from tidemark.query.reading.number_parts import FEW
from tidemark.query.reading.spending import Left, Limit, Spending, current
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.key_marks import KeyMarks

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

FEWEST_CELLS = 32  # for fewer groups x windows x ranks, reading whole runs is not considered at first
PATIENCE = 0.25  # seconds
DOUBT = 30.0  # how many times too large an estimate may be
TIMES = 1.5  # how many times as long as by the better way questions may take, beside SLACK
READ = 0.2  # of the estimate of what is spent once, which a trial may take beside
FIRST_TRIAL = 3  # the question of a topic from which ways are tried that seem to be slower
AGAIN = 2  # a way is tried again after so many times as many questions
SLACK = 5000.0  # us; shorter times and estimates count as this; ways that save no more are not tried
MOST_NUMBERS = 2**22  # of an array of counts, 8 bytes each
NUMBERS_A_ROW = 4
_FACTORS = 1 / 64, 64.0  # within which the rates are corrected
_SHARE = 0.3  # the share of a correction that one answer applies


@dataclass(frozen=True, slots=True)
class Rates:
    """Microseconds of a unit of work."""

    bounds: float = 150.0  # to bound the ranks of a run in a window
    target: float = 60.0  # to find a rank or point in a run, alone
    slice: float = 150.0  # to find a group in a run by its marks
    cell: float = 60.0  # to answer about a group in a window, alone
    passed_row: float = 0.003  # to go through the rows of a run in memory, a row of the run
    chosen_row: float = 0.006  # to find a few ranks among these, a row of the one window that is asked
    divided_row: float = 0.016  # the same with several windows
    sorted_row: float = 0.07  # to find more ranks, a row of the windows
    chosen_cell: float = 3.0  # to answer about a group in a window that has some of these rows
    summed_row: float = 0.012  # to add a row to exact sums
    read_row: float = 0.03  # to read and decode a row of a run, with two threads
    lookup: float = 100.0  # to look up a key in a run
    lists: float = 14_000.0  # to look keys up in the listings of a window
    far_block: float = 1000.0  # to fetch a block of an object store, of many at once
    far_row: float = 1.0  # of a scan of `events` in an object store
    statement: float = 25_000.0  # the least that a scan takes
    key_row: float = 0.14  # of a scan of the runs of a key
    event_key_row: float = 0.23  # of a scan of `events` that counts all keys
    counted_row: float = 0.02  # of one that counts few numbers
    paired_row: float = 0.04  # of one that sorts the pairs of a window and a key
    event_row: float = 0.006  # of a scan of `events`
    grouped: float = 50_000.0  # more, by groups or windows; so few groups are answered from the runs
    grouped_row: float = 0.025  # more, by groups or windows
    found_cell: float = 1.0  # to answer about a group in a window that a scan found


@dataclass(frozen=True, slots=True)
class Reading:
    """The part of the estimate of whole runs that is spent once: reading those that are not in memory.

    runs: the cost of reading each, in microseconds. payments: the payments of earlier questions for each.
    """

    runs: Mapping[Any, float]
    payments: LRUCache[float]

    @property
    def cost(self) -> float:
        """The cost of reading all of them."""
        return sum(self.runs.values())

    @property
    def paid(self) -> float:
        """How much of the cost is paid."""
        return sum(self.payments.peek(run) or 0.0 for run in self.runs)

    def pay(self, more: float) -> None:
        """Adds the payment of one more question, for each run its share."""
        whole = max(self.cost, 1.0)
        for run, cost in self.runs.items():
            self.payments.put(run, min(cost, (self.payments.peek(run) or 0.0) + more * cost / whole))


def most_numbers(rows: int) -> int:
    """The most numbers that are counted in an array with a place for each, of so many rows.

    With more numbers, to go through the array would take longer than to read the rows.
    """
    return min(MOST_NUMBERS, NUMBERS_A_ROW * rows)


def cheapest(estimates: Mapping[Way, float]) -> dict[Way, float]:
    """Only the way with the least estimate, without learned factors: the same data give the same way."""
    way = min(estimates, key=estimates.__getitem__)
    return {way: estimates[way]}


class Ways(Protocol[T_co]):
    """A question that is understood, with several ways to its answer."""

    def by(self, way: Way) -> T_co | None:
        """The answer by this way; None if it cannot answer after all, which INDEX always can."""


class Costs:
    """Estimates in microseconds, and the choice. Safe to share between threads: a lost correction is no loss.

    patience: no way is stopped in its first `patience` seconds.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.rates, self.patience = Rates(), patience
        self.forget()

    def forget(self) -> None:
        """Forgets all learned factors.

        `factors` are by topic and way, `_measured` has those that answered. `_asked` counts the questions of
        a topic that had several ways, and a way is tried next at the question `_due`. `_last` has the
        microseconds that the last two answers took.
        """
        self.factors: dict[tuple[str, Way], float] = {}
        self._ratios: dict[tuple[str, Way], float] = {}
        self._last: dict[tuple[str, Way], tuple[float, float]] = {}
        self._asked: dict[str, int] = {}
        self._due: dict[tuple[str, Way], int] = {}
        self._measured: set[tuple[str, Way]] = set()

    def windows(self, windows: int, targets: int, runs: int) -> float:
        """The cost of bounding each of these windows in each run, and finding the targets there."""
        return windows * runs * (self.rates.bounds + targets * self.rates.target)

    def groups(self, groups: int, windows: int, runs: int) -> float:
        """The cost of finding each of these groups in each run, and answering about it in each window."""
        return groups * (runs * self.rates.slice + windows * self.rates.cell)

    def whole_runs(self, rows: int, chosen: int, windows: int, cells: int, targets: int) -> float:
        """The cost of answers about cells from runs in memory.

        rows: the rows of these runs. chosen: those in the windows. cells: the pairs of a group and a window.
        targets: how many ranks or points are looked for in each.
        """
        rates = self.rates
        of_row = rates.chosen_row if windows == 1 else rates.divided_row
        of_row = rates.sorted_row if targets > FEW else of_row
        return rows * rates.passed_row + chosen * of_row + cells * rates.chosen_cell

    def sums(self, rows: int) -> float:
        """The cost of summing up these rows exactly, which runs in memory and scans do anew."""
        return rows * self.rates.summed_row

    def read_runs(self, rows: int) -> float:
        """The cost of reading whole runs with so many rows."""
        return rows * self.rates.read_row

    def event_scan(self, rows: int, cells: int | None, *, far: bool) -> float:
        """The cost of a scan of these rows of `events`, and of the answers about the cells.

        cells: the number of pairs of a group and a window; None for one answer about all rows.
        """
        rates = self.rates
        cost = rates.statement + rows * (rates.far_row if far else rates.event_row)
        if cells is not None:
            cost += rates.grouped + rows * rates.grouped_row + cells * rates.found_cell
        return cost

    def lookups(self, names: int, runs: int, *, far: bool) -> float:
        """The cost of looking up each of these keys in each run."""
        return names * runs * (self.rates.far_block if far else self.rates.lookup)

    def lists(self, windows: int) -> float:
        """The cost of looking keys up in the listings of each of these windows."""
        return windows * self.rates.lists

    def key_scan(self, runs: Sequence[KeyMarks], *, far: bool) -> float:
        """The cost of a scan of the rows of runs of a key."""
        rates = self.rates
        if far:
            return rates.far_block * sum(len(marks.positions) for marks in runs)
        return rates.statement + rates.key_row * sum(marks.rows for marks in runs)

    def event_keys(self, rows: int, numbers: float = math.inf) -> float:
        """The cost of counting all keys of so many rows of `events`, on a disk.

        numbers: about how many different keys there are, if they are integers and only their rows are asked.
        """
        rates = self.rates
        of_row = rates.counted_row if numbers <= most_numbers(rows) else rates.event_key_row
        return rates.statement + of_row * rows

    def pairs(self, rows: int) -> float:
        """The cost of counting the keys of several windows by a sort of so many rows of `events`."""
        return self.rates.statement + self.rates.paired_row * rows

    def corrected(self, topic: str, way: Way, cost: float) -> float:
        """The estimate, corrected by the learned factor of the way in questions of this topic."""
        return cost * self.factors.get((topic, way), 1.0)

    def lasted(self, topic: str, way: Way) -> float:
        """How many microseconds the last two answers of this topic by the way took at least; at first 0."""
        return min(self._last.get((topic, way), (0.0, 0.0)))

    def answer(
        self, topic: str, ways: Ways[T], estimates: Mapping[Way, float], reading: Reading | None = None
    ) -> T:
        """The answer by the way with the least corrected estimate; by the next one where that is stopped.

        reading: the part of the estimate of the way RUNS that questions share.
        """
        for attempt in self.attempts(topic, estimates, reading):
            if (found := attempt.answer(ways)) is not None:
                return found
        return cast("T", ways.by(INDEX))

    def attempts(
        self, topic: str, estimates: Mapping[Way, float], reading: Reading | None = None
    ) -> list[Attempt]:
        """The ways to take in turn until one has answered; see `answer`."""
        costs = {way: self.corrected(topic, way, cost) for way, cost in estimates.items()}
        shown = again = costs  # again: the cost of the way once runs are in memory
        if reading is not None:
            again = {**costs, RUNS: self.corrected(topic, RUNS, estimates[RUNS] - reading.cost)}
            shown = {**costs, RUNS: max(again[RUNS], costs[RUNS] - reading.paid)}
        order = sorted(shown, key=shown.__getitem__)
        unknown = {way for way in order if (topic, way) not in self._measured}
        if len(unknown) < len(order):  # those are tried, or come last; but to read runs has been paid for
            last = [way for way in order if way in unknown and costs[way] == again[way]]
            order = [*(way for way in order if way not in last), *last]
        if reading is not None and order[0] != RUNS:
            reading.pay(max(0.0, costs[order[0]] - again[RUNS]))
        spent = current()
        if spent is None or (len(order) == 1 and spent.limits):
            return [Attempt(order[0], None, self, topic, 0.0)]
        is_told = not spent.limits  # a choice inside a way is not recorded in the plan
        if is_told:
            told = spent.plan.estimates
            told.update({way: told.get(way, 0.0) + cost / 1000 for way, cost in shown.items()})
        trial, found = self._trial(topic, order, shown, again), list[Attempt]()
        if trial is not None:
            way, most = trial
            order.remove(way)
            found.append(Attempt(way, spent, self, topic, estimates[way], most / 1e6, is_told, is_trial=True))
        for way, after in zip(order, [*order[1:], None], strict=True):
            most = math.inf if after is None else max(2 * costs[way], costs[after], 1e6 * self.patience) / 1e6
            found.append(Attempt(way, spent, self, topic, estimates[way], most, is_told))
        return found

    def _trial(
        self, topic: str, order: Sequence[Way], shown: Mapping[Way, float], again: Mapping[Way, float]
    ) -> tuple[Way, float] | None:
        """A way to try before the cheapest measured one, and how many microseconds it may take.

        order: measured ways first. What is spent once has to be saved by as many questions as there were.
        """
        if len(order) == 1:
            return None
        asked = self._asked[topic] = self._asked.get(topic, 0) + 1
        best, known = order[0], shown[order[0]]
        if (topic, best) not in self._measured:
            return None
        most, is_learned = max(known / 2 + SLACK, (known - SLACK) / TIMES), (topic, best) in self._ratios
        for way in sorted(order[1:], key=shown.__getitem__):
            place, once = (topic, way), shown[way] - again[way]
            saved = known - again[way] / DOUBT
            is_due = asked >= self._due.get(place, FIRST_TRIAL) and saved > SLACK and is_learned
            is_new = place not in self._measured and place not in self._due
            is_cheap = place not in self._measured and shown[way] < (known if is_new else most / 2)
            if is_cheap or (is_due and once / DOUBT <= asked * saved):
                self._due[place] = AGAIN * asked
                return way, max(most, known if is_cheap and is_new else 0.0) + READ * once
        return None

    def learn(
        self,
        topic: str,
        way: Way,
        cost: float,
        seconds: float,
        *,
        is_trial: bool = False,
        is_stopped: bool = False,
        has_compared: bool = False,
    ) -> None:
        """Corrects the factor of the way by the time that it took, or after which it was stopped.

        A trial and the first scan set the factor; so does a first answer that took longer than a new process
        explains. has_compared: the way compared files as well, so its answer corrects nothing.
        """
        took = seconds * 1e6
        if not is_stopped:
            self._measured.add((topic, way))
            self._last[topic, way] = took, self._last.get((topic, way), (0.0, 0.0))[0]
        if (took < SLACK and not is_trial) or (has_compared and not is_stopped):
            return
        least, most = _FACTORS
        ratio = min(max(max(took, SLACK) / max(cost, SLACK), least), most)
        place = topic, way
        if is_stopped:  # the way takes more than that
            self.factors[place] = max(self.factors.get(place, 1.0), ratio)
            if not is_trial:  # maybe the machine was busy
                self._due[place] = self._asked.get(topic, 0) + 1
            return
        before = self._ratios.get(place)
        self._ratios[place] = ratio
        known = self.factors.get(place, 1.0)
        if is_trial or (before is None and (way == SCAN or seconds > self.patience)):
            known = ratio
        elif before is not None and (before > known) == (ratio > known):
            known = min(before, ratio) if ratio > known else max(before, ratio)
        else:
            known *= (ratio / known) ** _SHARE
        self.factors[place] = known
        self._due[place] = max(2 * FIRST_TRIAL, AGAIN * self._asked.get(topic, 0))


@dataclass(frozen=True, slots=True)
class Attempt:
    """A way that is taken, and stopped if it takes too long.

    spent: the question; None: nothing is measured, and the way is not stopped.
    cost: the estimate, not corrected, in microseconds. most: for how many seconds it may go on.
    is_told: whether the plan names the way. is_trial: whether it is tried before a cheaper one.
    """

    way: Way
    spent: Spending | None
    costs: Costs
    topic: str
    cost: float
    most: float = math.inf
    is_told: bool = False
    is_trial: bool = False

    def answer(self, ways: Ways[T]) -> T | None:
        """The answer by this way; None if it was stopped, or cannot answer: then nothing is learned of it."""
        spent = self.spent
        if spent is None:
            return ways.by(self.way)
        began, outer = spent.seconds(), spent.way
        limit, spent.way = Limit(began + self.most), self.way
        spent.limits.append(limit)
        try:
            found, is_stopped = ways.by(self.way), False
        except Left as left:
            if left.limit is not limit:
                raise
            found, is_stopped = None, True
        finally:
            taken, spent.way = spent.way, outer
            spent.limits.remove(limit)
        if is_stopped and self.is_told:
            spent.plan.left.append(self.way)
        if found is not None and self.is_told:
            spent.plan.took(taken)
        if is_stopped or (found is not None and taken == self.way):
            self.costs.learn(
                self.topic,
                self.way,
                self.cost,
                spent.seconds() - began,
                is_trial=self.is_trial,
                is_stopped=is_stopped,
                has_compared=spent.compared,
            )
        return found
