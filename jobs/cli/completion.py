"""Scripts that complete words of the command, made from its parser: a new option is in them by itself.

A script knows three things of each page: the words that may follow (commands, or choices), its options,
and what an option takes: a choice, a file's name, something else or nothing. The page is found by the
words so far, without the values of options.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemark.jobs.cli.arguments import FILE, FOLDER


@dataclass(frozen=True, slots=True)
class Option:
    """An option by its names. `takes` is what follows it: nothing, a value, a file or one of `choices`."""

    names: tuple[str, ...]
    summary: str
    takes: str
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A command: `path` is its words, `words` what may follow them, each with its summary."""

    path: str
    words: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]


def run(given: argparse.Namespace) -> int:
    """Prints the script of a shell."""
    from tidemark.jobs.cli.main import parser

    print(script(given.shell, parser()))
    return 0


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for bash, zsh or fish."""
    write: dict[str, Callable[[str, list[Page]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    return write[shell](parser.prog, list(pages(parser)))


def pages(parser: argparse.ArgumentParser, path: str = "") -> Iterator[Page]:
    """The pages of a parser, itself first."""
    words: list[tuple[str, str]] = []
    options, below = [], []
    for action in parser._actions:  # noqa: SLF001  argparse tells what a parser takes in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            words += [(one.dest, one.help or "") for one in action._choices_actions]  # noqa: SLF001
            below += [(f"{path} {word}".strip(), page) for word, page in action.choices.items()]
        elif action.option_strings:
            options.append(_option(action))
        else:
            words += [(str(choice), "") for choice in action.choices or ()]
    yield Page(path, tuple(words), tuple(options))
    for deeper, page in below:
        yield from pages(page, deeper)


def _option(action: argparse.Action) -> Option:
    choices = tuple(map(str, action.choices or ()))
    takes = "choice" if choices else "file" if action.metavar in (FILE, FOLDER) else "value"
    summary = " ".join((action.help or "").split())
    return Option(tuple(action.option_strings), summary, "" if action.nargs == 0 else takes, choices)


def _paths(known: list[Page]) -> list[str]:
    return [page.path for page in known if page.path]


def _taking(known: list[Page]) -> list[str]:
    """The options after which a word is a value and no command."""
    return sorted({name for page in known for one in page.options if one.takes for name in one.names})


_BASH = """\
# {prog} completes in bash: eval "$({prog} completion bash)"
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

# A name may hold spaces, so the line's end alone divides names.
_BASH_FILES = r"""local IFS=$'\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word"))"""


def _bash(prog: str, known: list[Page]) -> str:
    values, words = [], []
    for page in known:
        for one in page.options:
            lead = f" {page.path}".rstrip()
            told = "|".join(f'"{lead} {name}"' for name in one.names)
            if one.takes == "file":
                values.append(f"{told}) {_BASH_FILES}; return ;;")
            elif one.takes == "choice":
                values.append(f"{told}) {_bash_words(one.choices)}; return ;;")
            elif one.takes:
                values.append(f"{told}) return ;;")
        names = [name for one in page.options for name in one.names]
        lead = f'"{" " + page.path if page.path else ""}"'
        plain = _bash_words([word for word, _ in page.words]) if page.words else ":"
        words.append(f"{lead}) if [[ $word == -* ]]; then {_bash_words(names)}; else {plain}; fi ;;")
    return _BASH.format(
        prog=prog,
        taking="|".join(_taking(known)),
        paths="|".join(f'" {path}"' for path in _paths(known)),
        values="\n".join(f"        {line}" for line in values),
        words="\n".join(f"        {line}" for line in words),
    )


def _bash_words(words: list[str] | tuple[str, ...]) -> str:
    return f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word"))'


_ZSH = """\
#compdef {prog}
# {prog} completes in zsh: eval "$({prog} completion zsh)", below compinit
_{prog}() {{
    local before=$words[CURRENT-1] at= i
    local -a found
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
    _describe -t words {prog} found
}}
if [[ $funcstack[1] == _{prog} ]]; then _{prog} "$@"; else compdef _{prog} {prog}; fi
"""


def _zsh(prog: str, known: list[Page]) -> str:
    values, words = [], []
    for page in known:
        lead = f" {page.path}".rstrip()
        for one in page.options:
            told = "|".join(f'"{lead} {name}"' for name in one.names)
            does = {
                "file": "_files",
                "choice": f"compadd -- {' '.join(one.choices)}",
                "value": "_message value",
            }
            if one.takes:
                values.append(f"({told}) {does[one.takes]}; return ;;")
        options = [(name, one.summary) for one in page.options for name in one.names]
        names, plain = (" ".join(map(_zsh_word, several)) for several in (options, page.words))
        words.append(f'("{lead}") if [[ $PREFIX == -* ]]; then found=({names}); else found=({plain}); fi ;;')
    return _ZSH.format(
        prog=prog,
        taking="|".join(_taking(known)),
        paths="|".join(f'" {path}"' for path in _paths(known)),
        values="\n".join(f"        {line}" for line in values),
        words="\n".join(f"        {line}" for line in words),
    )


def _zsh_word(told: tuple[str, str]) -> str:
    word, summary = told
    return shlex.quote(f"{word}:{summary}" if summary else word)


_FISH = """\
# {prog} completes in fish: {prog} completion fish | source
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


def _fish(prog: str, known: list[Page]) -> str:
    lines = []
    for page in known:
        where = f"complete -c {prog} -n {_fish_text(f'__{prog}_at {_fish_text(page.path)}')}"
        lines += [f"{where} -a {word} -d {_fish_text(summary)}" for word, summary in page.words]
        for one in page.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in one.names
            )
            takes = {
                "": "",
                "value": " -x",
                "file": " -r -F",
                "choice": f" -x -a {_fish_text(' '.join(one.choices))}",
            }
            lines.append(f"{where} {names}{takes[one.takes]} -d {_fish_text(one.summary)}")
    return _FISH.format(
        prog=prog,
        taking=" ".join(_taking(known)),
        paths=" ".join(map(_fish_text, _paths(known))),
        lines="\n".join(lines),
    )


def _fish_text(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"
