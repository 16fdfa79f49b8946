"""What the commands print of a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.query.answers.rendering import text_of

if TYPE_CHECKING:
    from tidemark.warehouse import Certificate


def print_certificate(certificate: Certificate) -> None:
    """Prints the certificate of a purge."""
    taken = (
        f"{certificate.rows:,} rows and {sum(count for *_, count in certificate.records):,} rejected records"
    )
    named = f"purge {certificate.id}, request {text_of(certificate.request or 'none')}: {taken}"
    print(f"{named} left at {certificate.left_at}")
    if certificate.listing is not None:
        files = f"{certificate.deleted:,} files deleted, {sum(certificate.listing.values()):,} are there"
        print(f"gone at {certificate.gone_at}: no file of the warehouse has them; {files}")
    for reason in certificate.waits:
        print(f"not gone yet: {text_of(reason)}")
    if certificate.listing is None and not certificate.waits:
        print("old files have them until tidemark maintain runs, a grace later")
    print(f"outside: {'; '.join(certificate.outside)}")
