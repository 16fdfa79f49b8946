"""Java of ours, compiled where it runs by Janino, with which Spark compiles its queries.

So nobody needs a compiler of Java. The source is in Python's modules and goes wherever they go.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.sql import SparkSession


def compiled(spark: SparkSession, source: str, beside: Any = None) -> Any:
    """Janino when it has compiled: getClassLoader has the classes, getBytecodes their code.

    `beside` is a class loader whose classes the source may use; Spark's are there by default.
    """
    return _compiled(spark.sparkContext._jvm, source, beside)  # noqa: SLF001  Java is not in the Python API


@cache  # py4j takes two classes of one name for the same
def _compiled(java: Any, source: str, beside: Any) -> Any:
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(beside or java.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler
