"""Compiles Java source at run time with Janino, the compiler that Spark uses for its queries.

So no Java compiler has to be installed, and the Java source is shipped inside the Python modules.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.sql import SparkSession


def compile_java(spark: SparkSession, source: str, parent: Any = None) -> Any:
    """Compiles the source; returns Janino's compiler with getClassLoader and getBytecodes for the result.

    `parent` is a class loader whose classes the source may use; by default the one of Spark.
    """
    return _compiled(spark.sparkContext._jvm, source, parent)  # noqa: SLF001  Java is not in the Python API


@cache  # compiled once: py4j cannot tell two classes of the same name apart
def _compiled(java: Any, source: str, parent: Any) -> Any:
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent or java.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler
