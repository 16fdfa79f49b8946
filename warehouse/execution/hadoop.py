"""Whether Spark can reach an address by Hadoop's file systems, which delta-rs does not need.

tidemark itself uses none of them. Spark needs its own file system where it writes itself, for the checkpoint
of a stream, and uses one, if there is one, for views of `events`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from tidemark.warehouse.errors import InputError, StoreUnavailable, shortened
from tidemark.warehouse.os_errors import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MISSING = {
    "s3a": "--packages org.apache.hadoop:hadoop-aws:{version}, and the settings "
    "spark.hadoop.fs.s3a.access.key and spark.hadoop.fs.s3a.secret.key; for a store other than AWS also "
    "spark.hadoop.fs.s3a.endpoint and spark.hadoop.fs.s3a.path.style.access=true",
    "abfss": "--packages org.apache.hadoop:hadoop-azure:{version}, and the settings "
    "spark.hadoop.fs.azure.account.*",
    "gs": "the jar of Google's gcs-connector, and the settings spark.hadoop.fs.gs.*",
}
_OF_DISKS = {"", "file"}  # schemes


def has_file_system(spark: SparkSession, uri: str) -> bool:
    """Whether Spark has a file system for the address; if that has a scheme, False for Spark Connect."""
    scheme = urlparse(uri).scheme
    if not scheme:
        return True
    try:
        jvm: Any = spark._jvm  # noqa: SLF001  Hadoop is not in the Python API
        conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, conf)
    except Exception:  # noqa: BLE001  Java's, or that of a session of Spark Connect, which has no Java here
        return False
    return True


def check_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    """InputError if Spark cannot write to the checkpoint; the message has the settings that are missing."""
    if has_file_system(spark, checkpoint):
        return
    scheme = urlparse(checkpoint).scheme
    if scheme == "s3":
        raise InputError(
            f"a checkpoint in S3 is written as s3a://, got {checkpoint!r}. Write s3a{checkpoint[2:]}."
        )
    version = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]  # noqa: SLF001
    missing = _MISSING.get(scheme, f"the jar and the settings of Hadoop's file system for {scheme}")
    raise InputError(
        f"Spark writes the checkpoint of a stream itself, and has no file system for {checkpoint!r}. Nothing "
        f"was started. Give spark-submit {missing.format(version=version)}; or name a checkpoint on a disk "
        "that every start of the stream sees (checkpoint=, --checkpoint)."
    )


@contextmanager
def report_checkpoint(checkpoint: str) -> Iterator[None]:
    """In the block: InputError if a disk refuses the checkpoint, StoreUnavailable if a store does."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        refusal = error.java_exception
        if not refusal.getClass().getName().startswith(("java.io.", "java.nio.", "org.apache.hadoop.")):
            raise
        why = f"Spark cannot use the checkpoint {shortened(checkpoint)}: {one_line(refusal.toString())}"
        if urlparse(checkpoint).scheme not in _OF_DISKS:
            raise StoreUnavailable(
                f"{why}. Nothing was started. Check its address and the settings spark.hadoop.*, and run the "
                "same again."
            ) from error
        raise InputError(
            f"{why}. Nothing was started. Name a folder that it can write to (checkpoint=, --checkpoint)."
        ) from error
