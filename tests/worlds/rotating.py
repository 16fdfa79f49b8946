"""A changing world with a private column, whose secret is rotated: every name counts as in the plain list."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.worlds.acts import Act, Maker, Progress
from tests.worlds.changing import ChangingWorld
from tests.worlds.renames import rename
from tests.worlds.rows import TEXTS
from tests.worlds.world import secret_of
from tidemark import query, warehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.private import secrets
from tidemark.warehouse.settings.options import read_options


@dataclass
class RotatingWorld(ChangingWorld):
    """See the module. The lists have the values of the column, and the tables their tokens.

    secrets   the file with the secrets, once one was rotated
    """

    private: ClassVar[str | None] = "p"
    secrets: Path | None = None

    @property
    def makers(self) -> dict[Maker, int]:
        """Those of a changing world; rotations in the place of renames, which private columns rule out."""
        return {rotate if maker is rename else maker: often for maker, often in super().makers.items()}

    @property
    def fingerprint(self) -> str:
        """That of the secret that the warehouse has."""
        return read_options(Store.from_uri(self.uri)).fingerprint

    def stored(self) -> Counter[Any]:
        """See `ChangingWorld.stored`; each token as the value of which the secret makes it."""
        fingerprint, place = self.fingerprint, self.columns.schema.names.index("p")
        of_token: dict[bytes | None, str | None] = {None: None}
        of_token |= {bytes(query.token(text, fingerprint)): text for text in TEXTS}
        return Counter(
            {
                (*row[:place], of_token[row[place]], *row[place + 1 :]): rows
                for row, rows in super().stored().items()
            }
        )

    def check(self) -> None:
        """See `ChangingWorld.check`; the key and a condition count the rows of each name."""
        super().check()
        counts, wh = Counter(row["p"] for row in self.rows), query.open(self.uri)
        assert not self.rows or wh.distinct(key="p", mode="exact").count == len({*counts} - {None})
        measure = self.measures[0]
        for text in (*TEXTS[:3], "nobody") if self.rows else ():
            assert wh.frequency(text, key="p", mode="exact").count == counts[text]
            kept = [row for row in self.rows if row["p"] == text and row[measure] is not None]
            if kept:
                assert len(kept) == wh.quantile(0.5, measure, where={"p": text}, mode="exact").N


def rotate(world: RotatingWorld) -> Act:
    """A further secret, which wraps those before. Live rows are loaded; what left does not come back."""
    known = Path(f"{world.uri}-secrets-{next(world.numbers)}")

    def run(progress: Progress) -> None:
        if not known.exists():
            before = world.secrets or secret_of(world.uri)
            known.write_text(f"{before.read_text()}{secrets.new_secret()}\n")
            warehouse.use_secret(file=known)
        warehouse.alter(None, world.uri, rotate_secret=True, progress=progress)

    def rotated() -> None:
        world.secrets = known
        world.removed.clear()

    return Act("rotate", run, lambda rows: (rows[0] + rows[1], []), rotated, again=True)
