"""Columns of a world that exchange their names: what is asked and what comes has the new ones since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.worlds.acts import Act, Progress
from tidemark import warehouse

if TYPE_CHECKING:
    from tests.worlds.changing import ChangingWorld

_ASIDE = "aside"  # the name of a column while another one has its own


def rename(world: ChangingWorld) -> Act:
    """Two measures exchange their names, or two other columns, or both pairs; a commit for each rename."""
    chance = world.chance
    pairs = chance.choice([(("x", "y"),), (("a", "b"), ("x", "y")), (chance.sample("abc", 2),)])
    left = [{old: new} for p, q in pairs for old, new in ((p, _ASIDE), (q, p), (_ASIDE, q))]
    names = {old: new for p, q in pairs for old, new in ((p, q), (q, p))}

    def run(progress: Progress) -> None:
        while left:
            outcomes = [warehouse.alter(None, world.uri, rename=left[0]).outcome for _ in range(2)]
            assert outcomes == ["altered", "known"]  # as a scheduler repeats it
            left.pop(0)
            if progress is not None:
                progress("renamed")

    return Act(f"rename {names}", run, lambda rows: rows, lambda: have_renamed(world, names), again=True)


def have_renamed(world: ChangingWorld, names: Mapping[str, str]) -> None:
    """Every row, type, key, group and measure has the new names; readers of before are asked no more."""

    def new(name: str) -> str:
        return names.get(name, name)

    types = {new(name): kind for name, kind in world.columns.types.items()}
    world.columns = replace(world.columns, types={name: types[name] for name in world.columns.types})
    lists = [world.rows, *world.removed.values(), *world.given.values(), *world.sent.values()]
    for row in {id(row): row for rows in lists for row in rows}.values():
        row.update({new(name): value for name, value in row.items()})
    world.keys = [tuple(map(new, key)) for key in world.keys]
    world.groups = [tuple(map(new, group)) for group in world.groups]
    world.measures = "".join(map(new, world.measures))
    world.forget_readers()
