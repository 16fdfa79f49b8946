"""The commands of `tidemark` in the order of its help: name, help texts, and the function that runs each.

The folder options/ defines their options. A new command is a new entry of COMMANDS in one of these files. A
name of two words is a subcommand: `plot cdf` belongs to `plot`.
"""

from tidemark.jobs.cli.commands import asking, asking_keys, serving, showing, writing

_PARTS = (writing, asking, asking_keys, showing, serving)
COMMANDS = tuple(command for part in _PARTS for command in part.COMMANDS)
