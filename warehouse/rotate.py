"""Rotation: a newer secret wraps the tokens of private columns, in `events` and in all that is made from it.

    declare   one commit: the options say which secret and which stored names of columns are to come
    forget    digests and kept rows of removals, which are of the older tokens, are removed
    write     tasks write each file of `events` anew, with a token of each token in a newer column
    commit    one commit replaces all files and columns. By this the options that were declared take effect
              (`Options.rotated`): so all readers and writers see both, or none
    records   sealed records of `rejected` are wrapped, too
    settle    one commit writes the options as they are from then on

The older secret is not needed. Keys, groups and indexes that have private columns get tables of the newer
stored names, which are built from `events` as those that are added (alter.py); until then questions about
them wait in the same way. The earlier tables are dropped, and stay for the grace as the earlier files do.

If the process ends early, the same call goes on. A file has either the older or the newer column, so no
reader or writer takes one for the other: a call that began with the older secret is refused, and answers are
found again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.transaction import AddAction, RemoveAction

from tidemark.warehouse.delta.changes import NewProperties
from tidemark.warehouse.delta.data_files import list_files, read_file, remove_action
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.table_names import EVENTS, PROPERTY_PREFIX, REJECTED
from tidemark.warehouse.errors import InputError, without_secrets
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.steps import newest_step
from tidemark.warehouse.ingest import rejected
from tidemark.warehouse.ingest.all_files import AllFiles
from tidemark.warehouse.ingest.private_rows import WrappedTokens
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.private.secrets import Secret, newest_secret
from tidemark.warehouse.private.tokens import Token, made_by, text_prefix, token_of
from tidemark.warehouse.removals.finish import finish_open
from tidemark.warehouse.removals.purge_traces import forget_digests
from tidemark.warehouse.settings.alterations import changed_properties
from tidemark.warehouse.settings.options import Options, read_options
from tidemark.warehouse.work import Work

_LOG = logging.getLogger("tidemark.alter")
_NOW = f"{PROPERTY_PREFIX}rotation"


def check_rotation(options: Options) -> Secret:
    """The newest secret of this process, if the options can have it.

    InputError without private columns, for a companion of one, and if the process does not have the secret of
    the warehouse, or only secrets that do not wrap it.
    """
    if not options.private:
        raise InputError("the warehouse has no private columns, so it has no secret to rotate.")
    for one in options.companion_names:
        if one.column in options.private:
            raise InputError(
                f"the private column {one.column!r} is summarised by a companion, and companions stay as "
                "declared. Its secret cannot be rotated."
            )
    secret = newest_secret(options.fingerprint)
    secret.since(options.fingerprint)
    return secret


def rotate(work: Work) -> Options:
    """Gives the warehouse the newest secret of this process; the options from then on. See the module."""
    secret, race, forgotten = check_rotation(work.options), Race(work.store, EVENTS), -1
    tokens = files = None
    while (options := read_options(work.store, race.table)).fingerprint != secret.fingerprint:
        if _declared(work, race, options, secret):
            continue
        if not options.columns:
            race.change(NewProperties(replace(options, fingerprint=secret.fingerprint).properties()))
            continue
        if (number := removals.decided(race.table)) > forgotten:
            forgotten = number
            removed = finish_open(replace(work, options=options), with_kept=True).removed
            forget_digests(work.store, removed.removals)
            work.reached("digests forgotten")
            race.look_again()
            continue
        wanted = WrappedTokens(tuple(secret.since(options.fingerprint)), _columns(options))
        if files is None or wanted != tokens:
            tokens, files = wanted, AllFiles(work, "rotated", wanted)
        files.replace(race, _schema(race.table, wanted.columns))
    _wrap_records(work, secret)
    _settle(work, race)
    _LOG.info("%s: has the secret %s", without_secrets(work.store.uri), secret.fingerprint)
    return read_options(work.store)


def _declared(work: Work, race: Race, options: Options, secret: Secret) -> bool:
    """Commits the intended secret, unless the options name it already; whether it tried to commit."""
    if not options.columns:
        return False
    secret.since(options.fingerprint)  # another call may have rotated the secret to another one
    taken = [name for name, _ in options.columns]
    taken += [one for earlier in options.earlier_names.values() for one in earlier]
    number = secret.fingerprint.count("-") + 1
    columns = {
        name: options.names.free(f"{name}_{number}", taken) for name in taken if name in options.private
    }
    wanted = {"fingerprint": secret.fingerprint, "columns": columns, "step": newest_step(work.store)}
    if {name: options.rotation.get(name) for name in wanted} == wanted:
        return False
    to_come = replace(options, rotation={**wanted, "at": round(time.time() * 1e6)})
    ledger_table.add_columns(work.store, to_come.rotated(_stored_types(to_come)).key_fields)
    race.change(NewProperties(changed_properties(options, to_come)))
    work.reached("declared")
    return True


def _stored_types(options: Options) -> dict[str, str]:
    """Delta's types by stored names, as the table will have them."""
    columns = options.rotation["columns"]
    return {
        columns.get(name, options.names.stored(name)): "binary" if name in columns else kind
        for name, kind in options.columns
    }


def _columns(options: Options) -> Mapping[str, str]:
    """The newer stored names by those that the columns have."""
    return {options.names.stored(name): new for name, new in options.rotation["columns"].items()}


def _schema(events: DeltaTable, columns: Mapping[str, str]) -> Schema:
    return Schema(
        [
            Field(columns.get(one.name, one.name), one.type, nullable=one.nullable, metadata=one.metadata)
            for one in events.schema().fields
        ]
    )


def _wrap_records(work: Work, secret: Secret) -> None:
    """Wraps sealed records, so that they equal the records of a batch that comes again."""
    race = Race(work.store, REJECTED)
    while secret.seals:
        actions: list[AddAction | RemoveAction] = []
        for file in list_files(race.table):
            rows = read_file(work.store, REJECTED, file.path)
            place, texts = rows.schema.get_field_index("raw"), rows.column("raw").to_pylist()
            wrapped = [_wrapped(text, secret) for text in texts]
            if wrapped != texts:
                new = rows.set_column(place, rows.schema.field(place), pa.array(wrapped, pa.string()))
                source, batch = file.stats["min.source"], file.stats["min.batch"]
                actions += [remove_action(file), rejected.write_rows(work.store, source, batch, new).action()]
        if not actions or race.commit(actions):
            return


def _wrapped(text: str | None, secret: Secret) -> str | None:
    """The text of a record, wrapped with the newest secret; unchanged if it has that already."""
    if (found := token_of(text)) is None:
        return text
    sealed = bytes(found)
    for newer in secret.since(made_by(found, secret.fingerprint)):
        sealed = newer.wrapped(sealed)
    return str(Token(sealed, text_prefix(secret.fingerprint)))


def _settle(work: Work, race: Race) -> None:
    """Writes the options that took effect, unless they are written."""
    race.look_again()
    while race.table.metadata().configuration.get(_NOW, "{}") != "{}":
        options = read_options(work.store, race.table)
        if options.rotation:
            return  # of a secret that is newer still
        race.change(NewProperties({**options.properties(), _NOW: "{}"}))
