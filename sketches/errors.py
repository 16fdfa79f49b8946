"""The errors of `sketches`: one base class, and a subclass for each way in which a caller can react.

Every message states the value received, the value expected and the remedy. The constructors take one string,
so that errors can be pickled between a Spark task and its driver.
"""


class SketchError(ValueError):
    """Base class of every error that this package raises on purpose."""


class InvalidInput(SketchError):
    """An argument is outside its domain: an eps, a phi, an array, a type. The sketch has not changed."""


class EmptySketch(SketchError):
    """A quantile, minimum or maximum of zero elements was requested."""


class Saturated(SketchError):
    """A linear counter has no answer: every one of its cells has an arrival in the window."""


class BrokenInvariant(SketchError):
    """`check_invariants()` found that a value breaks its invariants: a bug, or arrays built by hand."""


class CorruptSketch(SketchError):
    """Stored bytes are damaged: truncated, changed or extended. The message has the byte offset."""


class WrongKind(SketchError):
    """Stored bytes are intact, but contain a sketch of another kind than the class that reads them."""


class NewerVersion(SketchError):
    """Stored bytes are intact, but a newer release wrote them in a newer format version."""


class RefusedMessage(SketchError):
    """Bytes are no message of this exchange: cut, changed or forged. Nothing of them was taken."""


class Undelivered(SketchError):
    """A message was not acknowledged, however often it was repeated: a place is gone, or its carrier."""


class Replaced(SketchError):
    """A later incarnation of this place has been started: this one must end."""


class LostState(SketchError):
    """A place was started again without its state, so the answer would miss what it had observed."""
