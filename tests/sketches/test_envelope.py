import pytest

from tidemark.sketches import CorruptSketch, InvalidInput, NewerVersion, SketchError, WrongKind
from tidemark.sketches.encoding.envelope import unwrap, wrap

PAYLOAD = bytes(range(40))
WHOLE = wrap(b"TEST", 1, PAYLOAD)


@pytest.mark.parametrize("payload", [b"", b"x", PAYLOAD])
def test_unwrap_returns_what_wrap_was_given(payload: bytes) -> None:
    for data in (wrap(b"TEST", 3, payload), bytearray(wrap(b"TEST", 3, payload))):
        assert unwrap(b"TEST", data, newest=3) == (3, payload)


def test_the_stored_form_is_fixed() -> None:
    assert wrap(b"TEST", 1, b"hi").hex() == "544d534b54455354010000000200000000000000" + "6869" + "e03fc385"


def test_a_cut_at_every_byte_is_noticed() -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(CorruptSketch, match="at byte"):
            unwrap(b"TEST", WHOLE[:end])


def test_a_flip_of_every_bit_is_noticed() -> None:
    for position in range(8 * len(WHOLE)):
        damaged = bytearray(WHOLE)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptSketch, match="at byte"):
            unwrap(b"TEST", bytes(damaged))


def test_every_other_value_of_every_byte_is_noticed() -> None:
    for position in range(len(WHOLE)):
        for change in range(1, 256):
            damaged = bytearray(WHOLE)
            damaged[position] ^= change
            with pytest.raises(CorruptSketch):
                unwrap(b"TEST", bytes(damaged))


@pytest.mark.parametrize("extra", [b"\0", b"garbage", WHOLE])
def test_bytes_after_the_end_are_noticed(extra: bytes) -> None:
    with pytest.raises(CorruptSketch, match=f"at byte {len(WHOLE)}"):
        unwrap(b"TEST", WHOLE + extra)


def test_a_length_that_lies_allocates_nothing() -> None:
    lying = WHOLE[:12] + (2**64 - 1).to_bytes(8, "little") + WHOLE[20:]
    with pytest.raises(CorruptSketch, match="length field"):
        unwrap(b"TEST", lying)


def test_whole_bytes_of_another_kind_are_named() -> None:
    with pytest.raises(WrongKind, match=r"OTHR.*TEST"):
        unwrap(b"TEST", wrap(b"OTHR", 1, PAYLOAD))


def test_whole_bytes_of_a_newer_release_ask_for_an_upgrade() -> None:
    with pytest.raises(NewerVersion, match=r"version 2 .* at most 1.*upgrade"):
        unwrap(b"TEST", wrap(b"TEST", 2, PAYLOAD))


@pytest.mark.parametrize("data", [None, "text", 5, [1, 2]])
def test_what_is_not_bytes_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput, match="expected the bytes"):
        unwrap(b"TEST", data)  # type: ignore[arg-type]  # not bytes


@pytest.mark.parametrize(("kind", "version"), [(b"TOO LONG", 1), (b"", 1), (b"TEST", 0), (b"TEST", 2**32)])
def test_wrap_refuses_what_the_header_cannot_hold(kind: bytes, version: int) -> None:
    with pytest.raises(InvalidInput):
        wrap(kind, version, b"")


def test_every_error_is_a_sketch_error_and_a_value_error() -> None:
    for error in (CorruptSketch, WrongKind, NewerVersion, InvalidInput):
        assert issubclass(error, SketchError)
        assert issubclass(error, ValueError)
