"""The allow lists of the SQL server: jobs/sql/guard.py checks every statement of a client against them.

The names of plans and expressions are the names of Spark's classes in the output of its parser. Everything
that is not listed is refused, including features of later versions of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

QUERY_PLANS = """
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit
    LocalRelation NearestByJoin Offset OneRowRelation PipeOperator Pivot Project Repartition
    RepartitionByExpression ResolvedInlineTable Sample Sort SubqueryAlias Union Unpivot UnresolvedHaving
    UnresolvedHint UnresolvedInlineTable UnresolvedQualify UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith
    WithWindowDefinition
"""
COMMAND_PLANS = """
    DescribeColumn DescribeFunction DescribeNamespace DescribeQueryCommand DescribeRelation
    DescribeRelationJsonCommand DescribeTablePartition ExplainCommand ResetCommand SetCatalogAndNamespace
    SetCommand SetNamespaceCommand ShowCatalogsCommand ShowCollationsCommand ShowColumns ShowCreateTable
    ShowCurrentNamespaceCommand ShowFunctions ShowNamespacesCommand ShowPartitions ShowTablePartition
    ShowTableProperties ShowTables ShowTablesExtended ShowViews CurrentNamespace UnresolvedFunctionName
    UnresolvedNamespace UnresolvedTable UnresolvedTableOrView UnresolvedView
"""
# Operators only. All other computations are functions, which are listed by name.
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
# Groups of Spark's functions that depend only on their arguments. Excluded: Avro, Protobuf and XML, whose
# options name files and addresses.
FUNCTION_GROUPS = """
    agg array bitwise collection conditional conversion csv datetime generator hash json lambda map math
    predicate sketch st string struct url variant vector window
"""
# Functions of other groups. Excluded: reflect, java_method and try_reflect, which call any Java method.
OTHER_FUNCTIONS = """
    aes_decrypt aes_encrypt assert_true bitmap_bit_position bitmap_bucket_number bitmap_count
    current_catalog current_database current_schema current_user input_file_block_length
    input_file_block_start input_file_name monotonically_increasing_id raise_error session_user
    spark_partition_id try_aes_decrypt typeof user uuid version
"""
TABLE_FUNCTIONS = """
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range
    sql_keywords stack variant_explode variant_explode_outer
"""
SESSION_SETTINGS = """
    spark.sql.adaptive.enabled spark.sql.ansi.enabled spark.sql.autoBroadcastJoinThreshold
    spark.sql.broadcastTimeout spark.sql.caseSensitive spark.sql.crossJoin.enabled spark.sql.groupByAliases
    spark.sql.groupByOrdinal spark.sql.mapKeyDedupPolicy spark.sql.orderByOrdinal spark.sql.session.timeZone
    spark.sql.shuffle.partitions spark.sql.thriftServer.incrementalCollect
    spark.sql.thriftServer.queryTimeout spark.sql.ansi.doubleQuotedIdentifiers
    spark.sql.legacy.timeParserPolicy
"""
# Settings that JDBC drivers send with a connection; Spark ignores them.
DRIVER_SETTINGS = """
    hive.resultset.use.unique.column.names hive.server2.thrift.resultset.default.fetch.size
"""
_ALLOWED = (
    "Clients of this server may run: SELECT from its views and table functions, SHOW, DESCRIBE, EXPLAIN of a "
    "query, USE, and SET of {settings}. The server's option --allow-all allows all other statements."
)


def lists(java: Any, published: Iterable[str]) -> dict[str, set[str]]:
    """The lists by name, with entries in lower case; `published` are the warehouses' table functions."""
    return {
        "plans": _names(QUERY_PLANS, COMMAND_PLANS),
        "expressions": _names(EXPRESSIONS),
        "functions": _names(OTHER_FUNCTIONS) | set(_functions(java)),
        "table functions": _names(TABLE_FUNCTIONS) | {function.lower() for function in published},
        "settings": _names(SESSION_SETTINGS, DRIVER_SETTINGS),
    }


def allowed_text() -> str:
    """The sentence of the error that lists what is allowed."""
    return _ALLOWED.format(settings=", ".join(SESSION_SETTINGS.split()))


def _names(*texts: str) -> set[str]:
    return {name.lower() for text in texts for name in text.split()}


def _functions(java: Any) -> Iterator[str]:
    """The names of Spark's built-in functions in FUNCTION_GROUPS."""
    registry = java.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    groups = {f"{group}_funcs" for group in FUNCTION_GROUPS.split()}
    functions = registry.listFunction().iterator()
    while functions.hasNext():
        function = functions.next()
        if registry.lookupFunction(function).get().getGroup() in groups:
            yield function.funcName()
