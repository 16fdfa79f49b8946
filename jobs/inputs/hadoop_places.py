"""The file systems of Hadoop, which Spark reads, as `find_inputs` asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopPlaces:
    """Implements `Places`. A path without a scheme is in Hadoop's default file system."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm  # noqa: SLF001  Hadoop's file systems are not in the Python API
        self._conf = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def _at(self, path: str) -> tuple[Any, Any]:
        """The file system of a path, and the path in Java."""
        place = self._java.org.apache.hadoop.fs.Path(path or "/")
        return place.getFileSystem(self._conf), place

    def is_folder(self, path: str) -> bool | None:
        """See `Places.is_folder`."""
        system, place = self._at(path)
        return bool(system.getFileStatus(place).isDirectory()) if system.exists(place) else None

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """See `Places.entries`."""
        system, place = self._at(folder)
        return [(status.getPath().getName(), status.isDirectory()) for status in system.listStatus(place)]

    def real(self, path: str) -> str:
        """See `Places.real`."""
        system, place = self._at(path)
        return str(system.resolvePath(place))

    def parquet_schema(self, path: str) -> str:
        """The schema in the footer of a Parquet file, as text."""
        _, place = self._at(path)
        parquet = self._java.org.apache.parquet.hadoop
        with_footer = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(place, self._conf))
        try:
            return str(with_footer.getFileMetaData().getSchema().getFields())
        finally:
            with_footer.close()
