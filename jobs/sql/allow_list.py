"""What clients of the SQL server may do: the lists that jobs/sql/guard.py holds each statement against.

Names of plans and expressions are those of Spark's classes as its parser leaves a statement. What is on no
list is refused, and with it what a later Spark brings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

QUERIES = """
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit
    LocalRelation NearestByJoin Offset OneRowRelation PipeOperator Pivot Project Repartition
    RepartitionByExpression ResolvedInlineTable Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving
    UnresolvedHint UnresolvedInlineTable UnresolvedQualify UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith
    WithWindowDefinition
"""
COMMANDS = """
    DescribeColumn DescribeFunction DescribeNamespace DescribeQueryCommand DescribeRelation
    DescribeRelationJsonCommand DescribeTablePartition ExplainCommand ResetCommand SetCatalogAndNamespace
    SetCommand SetNamespaceCommand ShowCatalogsCommand ShowCollationsCommand ShowColumns ShowCreateTable
    ShowCurrentNamespaceCommand ShowFunctions ShowNamespacesCommand ShowPartitions ShowTablePartition
    ShowTableProperties ShowTables ShowTablesExtended ShowViews CurrentNamespace UnresolvedFunctionName
    UnresolvedNamespace UnresolvedTable UnresolvedTableOrView UnresolvedView
"""
# Operators alone: what else computes is a function, and has a name.
EXPRESSIONS = """
    Add AggregateExpression Alias And AnyValue AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    CaseWhen Cast Coalesce Collate Concat CreateNamedStruct Cube CurrentDate CurrentPath CurrentRow
    CurrentTime CurrentTimestamp CurrentUser Divide EqualNullSafe EqualTo Exists First
    FunctionTableSubqueryArgumentExpression GreaterThan GreaterThanOrEqual GroupingSets ILike In InSubquery
    IntegralDivide IsNotNull IsNull LambdaFunction Last LateralSubquery LessThan LessThanOrEqual Like
    LikeAll LikeAny ListQuery Literal Lower MultiAlias Multiply NamedArgumentExpression Not NotLikeAll
    NotLikeAny Or Overlay PipeExpression RLike Remainder Rollup ScalarSubquery SemiStructuredExtract
    ShiftLeft ShiftRight ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim
    StringTrimLeft StringTrimRight Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive
    UnboundedFollowing UnboundedPreceding UnresolvedAlias UnresolvedAttribute UnresolvedCollation
    UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator UnresolvedNamedLambdaVariable
    UnresolvedOrdinal UnresolvedPartitionSpec UnresolvedPipeAggregateOrdinal UnresolvedRegex UnresolvedStar
    UnresolvedStarExceptOrReplace UnresolvedWindowExpression UnspecifiedFrame WindowExpression
    WindowSpecDefinition
"""
# Groups of Spark's functions that compute from their arguments alone. Not: Avro, Protobuf and XML, whose
# options name files and addresses.
GROUPS = """
    agg array bitwise collection conditional conversion csv datetime generator hash json lambda map math
    predicate sketch st string struct url variant vector window
"""
# Of those that are left, some. Not: reflect, java_method and try_reflect, which call any method of Java's.
FUNCTIONS = """
    aes_decrypt aes_encrypt assert_true bitmap_bit_position bitmap_bucket_number bitmap_count
    current_catalog current_database current_schema current_user input_file_block_length
    input_file_block_start input_file_name monotonically_increasing_id raise_error session_user
    spark_partition_id try_aes_decrypt typeof user uuid version
"""
TABLE_FUNCTIONS = """
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range
    sql_keywords stack variant_explode variant_explode_outer
"""
SETTINGS = """
    spark.sql.adaptive.enabled spark.sql.ansi.enabled spark.sql.autoBroadcastJoinThreshold
    spark.sql.broadcastTimeout spark.sql.caseSensitive spark.sql.crossJoin.enabled spark.sql.groupByAliases
    spark.sql.groupByOrdinal spark.sql.mapKeyDedupPolicy spark.sql.orderByOrdinal spark.sql.session.timeZone
    spark.sql.shuffle.partitions spark.sql.thriftServer.incrementalCollect
    spark.sql.thriftServer.queryTimeout spark.sql.ansi.doubleQuotedIdentifiers
    spark.sql.legacy.timeParserPolicy
"""
# What drivers give with a connection; it is of no matter to Spark.
OF_DRIVERS = """
    hive.resultset.use.unique.column.names hive.server2.thrift.resultset.default.fetch.size
"""
TOLD = (
    "Clients of this server may ask: SELECT from its views and table functions, SHOW, DESCRIBE, EXPLAIN of a "
    "query, USE, and SET of {settings}. Whoever runs it allows all the rest with --allow-all."
)


def lists(java: Any, published: Iterable[str]) -> dict[str, set[str]]:
    """The lists by name, in lower case; `published` are our own table functions."""
    return {
        "plans": _names(QUERIES, COMMANDS),
        "expressions": _names(EXPRESSIONS),
        "functions": _names(FUNCTIONS) | set(_functions(java)),
        "table functions": _names(TABLE_FUNCTIONS) | {one.lower() for one in published},
        "settings": _names(SETTINGS, OF_DRIVERS),
    }


def told() -> str:
    """What is allowed, for the error."""
    return TOLD.format(settings=", ".join(SETTINGS.split()))


def _names(*texts: str) -> set[str]:
    return {name.lower() for text in texts for name in text.split()}


def _functions(java: Any) -> Iterator[str]:
    """Spark's functions of the groups."""
    registry = java.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    groups = {f"{group}_funcs" for group in GROUPS.split()}
    found = registry.listFunction().iterator()
    while found.hasNext():
        function = found.next()
        if registry.lookupFunction(function).get().getGroup() in groups:
            yield function.funcName()
