"""Completion scripts for bash, zsh and fish, generated from the parser of the command.

A `Page` stands for one command. It lists the words that may follow (subcommands or choices), the options,
and the kind of value of each option: a choice, a file name, another value, or none. A script finds the page
from the words on the line, leaving out the values of options.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.options.parts import FILE, FOLDER


@dataclass(frozen=True, slots=True)
class Option:
    """An option by its names. `takes` is "", "value", "file" or "choice" (one of `choices`)."""

    names: tuple[str, ...]
    summary: str
    takes: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A command: `path` is its name, "" at the top; `words` are (word, summary) pairs that may follow."""

    path: str
    words: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]


def run(given: argparse.Namespace) -> int:
    """Prints the completion script for a shell."""
    from tidemark.jobs.cli.main import parser

    print(script(given.shell, parser()))
    return DONE


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for bash, zsh or fish."""
    write: dict[str, Callable[[str, list[Page]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return write[shell](parser.prog, list(pages(parser)))


def pages(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Page]:
    """The pages of a parser and its subcommands, depth first; the parser itself comes first."""
    words: list[tuple[str, str]] = []
    options, subcommands = [], []
    for action in parser._actions:  # noqa: SLF001  argparse has no public list of actions
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            words += [(choice.dest, choice.help or "") for choice in action._choices_actions]  # noqa: SLF001
            subcommands += [(f"{path} {word}".strip(), page) for word, page in action.choices.items()]
        elif action.option_strings:
            options.append(_option(action))
        else:
            words += [(str(choice), "") for choice in action.choices or ()]
    yield Page(path, tuple(words), tuple(options))
    for name, page in subcommands:
        yield from pages(page, name)


def _option(action: argparse.Action) -> Option:
    choices = tuple(map(str, action.choices or ()))
    takes = "choice" if choices else "file" if action.metavar in (FILE, FOLDER) else "value"
    summary = " ".join((action.help or "").split())
    return Option(tuple(action.option_strings), summary, "" if action.nargs == 0 else takes, choices)


def _options_with_value(all_pages: list[Page]) -> list[str]:
    """The options whose next word is a value, not a command."""
    return sorted(
        {name for page in all_pages for option in page.options if option.takes for name in option.names}
    )


_BASH = """\
# Completion of {prog} in bash: eval "$({prog} completion bash)"
_{prog}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} at= i
    if [[ $word == = ]]; then word=; fi
    if [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{COMP_WORDS[i - 1]}}" in {taking}) continue ;; esac
        case "$at ${{COMP_WORDS[i]}}" in
            {paths}) at+=" ${{COMP_WORDS[i]}}" ;;
        esac
    done
    case "$at $before" in
{values}
    esac
    case "$at" in
{words}
    esac
}}
complete -F _{prog} {prog}
"""

# A file name may contain spaces: only line ends separate names.
_BASH_FILES = r"""local IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word"))"""


def _bash(prog: str, all_pages: list[Page]) -> str:
    values, words = [], []
    for page in all_pages:
        for option in page.options:
            lead = f" {page.path}".rstrip()
            pattern = "|".join(f'"{lead} {name}"' for name in option.names)
            if option.takes == "file":
                values.append(f"{pattern}) {_BASH_FILES}; return ;;")
            elif option.takes == "choice":
                values.append(f"{pattern}) {_bash_words(option.choices)}; return ;;")
            elif option.takes:
                values.append(f"{pattern}) return ;;")
        names = [name for option in page.options for name in option.names]
        lead = f'"{" " + page.path if page.path else ""}"'
        following = _bash_words([word for word, _ in page.words]) if page.words else ":"
        words.append(f"{lead}) if [[ $word == -* ]]; then {_bash_words(names)}; else {following}; fi ;;")
    return _BASH.format(
        prog=prog,
        taking="|".join(_options_with_value(all_pages)),
        paths="|".join(f'" {page.path}"' for page in all_pages if page.path),
        values="\n".join(f"        {line}" for line in values),
        words="\n".join(f"        {line}" for line in words),
    )


def _bash_words(words: list[str] | tuple[str, ...]) -> str:
    return f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word"))'


_ZSH = """\
#compdef {prog}
# Completion of {prog} in zsh: eval "$({prog} completion zsh)", below compinit
_{prog}() {{
    local before=$words[CURRENT-1] at= i
    local -a matches
    if [[ $PREFIX == --*=* ]]; then before=${{PREFIX%%=*}}; compset -P '*='; fi
    for ((i = 2; i < CURRENT; i++)); do
        case "$words[i-1]" in ({taking}) continue ;; esac
        case "$at $words[i]" in ({paths}) at+=" $words[i]" ;; esac
    done
    case "$at $before" in
{values}
    esac
    case "$at" in
{words}
    esac
    _describe -t words {prog} matches
}}
if [[ $funcstack[1] == _{prog} ]]; then _{prog} "$@"; else compdef _{prog} {prog}; fi
"""


def _zsh(prog: str, all_pages: list[Page]) -> str:
    values, words = [], []
    for page in all_pages:
        lead = f" {page.path}".rstrip()
        for option in page.options:
            pattern = "|".join(f'"{lead} {name}"' for name in option.names)
            actions = {
                "file": "_files",
                "choice": f"compadd -- {' '.join(option.choices)}",
                "value": "_message value",
            }
            if option.takes:
                values.append(f"({pattern}) {actions[option.takes]}; return ;;")
        options = [(name, option.summary) for option in page.options for name in option.names]
        names, following = (" ".join(map(_zsh_word, pairs)) for pairs in (options, page.words))
        words.append(
            f'("{lead}") if [[ $PREFIX == -* ]]; then matches=({names}); else matches=({following}); fi ;;'
        )
    return _ZSH.format(
        prog=prog,
        taking="|".join(_options_with_value(all_pages)),
        paths="|".join(f'" {page.path}"' for page in all_pages if page.path),
        values="\n".join(f"        {line}" for line in values),
        words="\n".join(f"        {line}" for line in words),
    )


def _zsh_word(pair: tuple[str, str]) -> str:
    word, summary = pair
    return shlex.quote(f"{word}:{summary}" if summary else word)


_FISH = """\
# Completion of {prog} in fish: {prog} completion fish | source
function __{prog}_at
    set -l at
    set -l before
    for word in (commandline -opc)[2..-1]
        if not contains -- "$before" {taking}
            and contains -- (string join ' ' -- $at $word) {paths}
            set at (string join ' ' -- $at $word)
        end
        set before $word
    end
    test "$at" = "$argv[1]"
end
complete -c {prog} -f
{lines}
"""


def _fish(prog: str, all_pages: list[Page]) -> str:
    lines = []
    for page in all_pages:
        prefix = f"complete -c {prog} -n {_fish_text(f'__{prog}_at {_fish_text(page.path)}')}"
        lines += [f"{prefix} -a {word} -d {_fish_text(summary)}" for word, summary in page.words]
        for option in page.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
            )
            values = {
                "": "",
                "value": " -x",
                "file": " -r -F",
                "choice": f" -x -a {_fish_text(' '.join(option.choices))}",
            }
            lines.append(f"{prefix} {names}{values[option.takes]} -d {_fish_text(option.summary)}")
    return _FISH.format(
        prog=prog,
        taking=" ".join(_options_with_value(all_pages)),
        paths=" ".join(_fish_text(page.path) for page in all_pages if page.path),
        lines="\n".join(lines),
    )


def _fish_text(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
