import numpy as np
import pytest

from tidemark.sketches import InvalidInput
from tidemark.sketches.inputs import FLOAT64, INT64, as_column, checked_sorted, column_dtype, sorted_column


@pytest.mark.parametrize("given", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64, ">i4", ">i8"])
def test_int64_takes_integers_of_every_width(given: str) -> None:
    column = as_column(np.array([3, 1, 2], given), INT64)
    assert column.dtype == INT64
    assert column.tolist() == [3, 1, 2]


@pytest.mark.parametrize("given", [np.float16, np.float32, np.float64, ">f8", np.int32, np.int64, np.uint64])
def test_float64_takes_what_it_holds_exactly(given: str) -> None:
    column = as_column(np.array([3, 1, 2], given), FLOAT64)
    assert column.dtype == FLOAT64
    assert column.tolist() == [3, 1, 2]


def test_an_integer_that_a_double_would_round_is_refused() -> None:
    assert as_column([2**53, -(2**53)], FLOAT64).tolist() == [2.0**53, -(2.0**53)]
    for value in (2**53 + 1, -(2**53) - 1):
        with pytest.raises(InvalidInput, match="holds exactly"):
            as_column([value], FLOAT64)


def test_an_unsigned_integer_that_int64_would_wrap_is_refused() -> None:
    with pytest.raises(InvalidInput, match="holds exactly"):
        as_column(np.array([2**63], np.uint64), INT64)


@pytest.mark.parametrize(
    "given", [[True], ["1"], [None], [1j], np.array([1], "M8[s]"), np.array([1.0], object)]
)
def test_what_is_no_number_is_refused(given: object) -> None:
    for dtype in (FLOAT64, INT64):
        with pytest.raises(InvalidInput, match="dtype"):
            as_column(given, dtype)  # type: ignore[arg-type]  # no number


def test_floats_are_refused_for_int64() -> None:
    with pytest.raises(InvalidInput, match="float64"):
        as_column([1.0], INT64)


def test_a_masked_array_is_refused_because_its_nulls_would_count() -> None:
    with pytest.raises(InvalidInput, match="compressed"):
        as_column(np.ma.masked_array([1.0, 2.0], [True, False]), FLOAT64)


@pytest.mark.parametrize("dtype", [np.float32, "int32", bool, object, "nonsense"])
def test_a_column_is_float64_or_int64(dtype: str) -> None:
    with pytest.raises(InvalidInput, match="expected float64 or int64"):
        column_dtype(dtype)


def test_sorting_leaves_the_callers_array_alone() -> None:
    given = np.array([3.0, 1.0])
    assert sorted_column(given, FLOAT64).tolist() == [1.0, 3.0]
    assert given.tolist() == [3.0, 1.0]


@pytest.mark.parametrize("given", [[1.0, np.nan], [np.nan, 1.0], [np.nan]])
def test_nan_is_refused_wherever_it_stands(given: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"1 NaN among.*counts NaN apart"):
        sorted_column(given, FLOAT64)
    with pytest.raises(InvalidInput):
        checked_sorted(given, FLOAT64)


def test_an_unsorted_array_is_refused_with_the_place() -> None:
    with pytest.raises(InvalidInput, match=r"got 5.0 before 4.0 at index 2"):
        checked_sorted([1.0, 2.0, 5.0, 4.0], FLOAT64)


def test_without_a_dtype_integers_stay_integers() -> None:
    assert checked_sorted([1, 2**53 + 1], None).tolist() == [1, 2**53 + 1]
    assert checked_sorted([1.5], None).dtype == FLOAT64


@pytest.mark.parametrize("given", [1.0, [[1.0]], np.zeros((2, 2))])
def test_only_one_dimension_is_taken(given: object) -> None:
    with pytest.raises(InvalidInput, match="one dimension"):
        sorted_column(given, FLOAT64)  # type: ignore[arg-type]  # no column
