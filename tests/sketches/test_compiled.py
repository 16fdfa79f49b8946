import pytest

from sketches import compiled


def test_a_place_that_cannot_be_written_costs_compilation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is read-only and there is no home, numba refuses to keep what it compiled."""
    asked = []

    def njit(**options: bool) -> object:
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("no locator available")
        return lambda loop: loop

    monkeypatch.setattr(compiled, "njit", njit)
    assert compiled.compiled(len)([1, 2]) == 2
    assert asked == [{"cache": True, "nogil": True}, {"nogil": True}]
