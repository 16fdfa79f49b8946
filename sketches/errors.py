"""What can go wrong in `sketches`: one base class, and a subclass for each thing a caller can do about it.

Every message says what came, what was expected and what to do. The classes take one string, so they survive
pickling between a Spark task and its driver.
"""


class SketchError(ValueError):
    """Base of every error that this package raises on purpose."""


class InvalidInput(SketchError):
    """An argument is outside its domain: an eps, a phi, an array, a type. Nothing was changed."""


class EmptySketch(SketchError):
    """A quantile was asked of zero elements."""


class BrokenInvariant(SketchError):
    """A `check_invariants()` found a value that breaks its own definition: a bug, or hand-made arrays."""


class CorruptSketch(SketchError):
    """Stored bytes are damaged: cut, changed or extended. The message names the byte offset."""


class WrongKind(SketchError):
    """Stored bytes are whole, but they are another sketch than the one asked for."""


class NewerVersion(SketchError):
    """Stored bytes are whole, but a newer release wrote them."""
