"""Facts about a step beside its plan: who planned it, the times of its rows, and a sample of the rows.

The facts are a JSON object by step, a text in the footers of the files of `steps`, and are written with the
plan. Nothing depends on them: a step that another version planned has none, and a version that does not know
them leaves them out where it joins files. Samples are kept of the SAMPLED newest steps.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.warehouse.delta import data_files
from tidemark.warehouse.delta.commits import writer
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.integrity.row_sample import RowSample

TEXT = "tidemark.facts"
SAMPLED = 1024  # steps whose samples are kept


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The facts of a step; None for what is not known.

    user, host, version   who planned it, on which machine, with which version
    times                 the first and the last time of its rows, in microseconds since 1970
    sample                of the rows of a bulk load
    """

    user: str | None = None
    host: str | None = None
    version: str | None = None
    times: tuple[int, int] | None = None
    sample: RowSample | None = None

    @classmethod
    def here(cls, times: tuple[int, int] | None, sample: RowSample | None) -> StepFacts:
        """The facts of a step that this process plans."""
        return cls(_user(), socket.gethostname(), writer(), times, sample)

    def to_json(self, *, sampled: bool) -> dict[str, Any]:
        """The facts as a JSON object, without the sample unless `sampled`."""
        sample = self.sample.to_json() if self.sample is not None and sampled else None
        named = {"user": self.user, "host": self.host, "version": self.version, "times": self.times}
        return {name: value for name, value in {**named, "sample": sample}.items() if value is not None}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> StepFacts:
        """The facts of a JSON object; facts that it lacks are None."""
        times, sample = given.get("times"), given.get("sample")
        return cls(
            given.get("user"),
            given.get("host"),
            given.get("version"),
            None if times is None else (int(times[0]), int(times[1])),
            None if sample is None else RowSample.from_json(sample),
        )


def _user() -> str | None:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a process without a name, as in some containers
        return None


def text_of(facts: Mapping[int, StepFacts]) -> dict[str, str]:
    """The text for the footer of a file of `steps`; nothing without facts."""
    if not facts:
        return {}
    oldest = sorted(facts)[-SAMPLED:][0]
    found = {str(step): facts[step].to_json(sampled=step >= oldest) for step in sorted(facts)}
    return {TEXT: json.dumps(found, ensure_ascii=False)}


def read_facts(store: Store, files: Sequence[DataFile]) -> dict[int, StepFacts]:
    """The facts by step that files of `steps` have; DamagedWarehouse if a file is damaged."""
    texts = (data_files.read_text(store, STEPS, file.path, TEXT) for file in files)
    found = (json.loads(text) for text in texts if text is not None)
    return {int(step): StepFacts.from_json(one) for of_file in found for step, one in of_file.items()}
