"""What Elasticsearch's and OpenSearch's answers to a search mean.

Elasticsearch names every error by its Java class in snake case, without a class of errors above it: the
name decides, then the HTTP status. A search that ran is a 200 even if it saw half of the data, so the
proof of success is in the body, never in the status.

Names: https://github.com/elastic/elasticsearch/blob/main/server/src/main/java/org/elasticsearch/ElasticsearchException.java,
https://github.com/opensearch-project/OpenSearch/blob/main/server/src/main/java/org/opensearch/OpenSearchServerException.java
"""

import re
from typing import Any, Final

from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Rule, RuleBook, When, present
from orchestration.reasons import Reason

NAME: Final = "error.type|error.root_cause.type|error.failed_shards.reason.type|error.caused_by.type"
"""Where errors say their name. ``search_phase_execution_exception`` says nothing itself: its causes do."""

CAUSE: Final = "error|error.root_cause|error.failed_shards.reason"
"""The objects that carry such a name, with what stands beside it."""

ELASTIC: Final = "https://github.com/elastic/elasticsearch/blob/main/server/src/main/java/org/elasticsearch/"
SEARCH_API: Final = "https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-search"


def json_or_unnamed(value: object) -> bool:
    """Match the media types of a JSON reply, Elasticsearch's own among them, and none at all."""
    return isinstance(value, str) and (not value or "json" in value.lower())


def an_object(value: object) -> bool:
    """Match a body that is one JSON object: paths would look into each item of a list."""
    return isinstance(value, dict)


def not_true(value: object) -> bool:
    """Match an absent flag, and one that is false."""
    return value is None or value is False


def every_shard(value: object) -> bool:
    """Match a shard count in which no shard failed or was left out."""
    if not isinstance(value, dict):
        return False
    failed, total, successful = (value.get(name) for name in ("failed", "total", "successful"))
    # Up to 6.x a shard without any live copy was in `total` alone.
    return type(failed) is int and failed == 0 and successful == total


def every_cluster(value: object) -> bool:
    """Match the absence of remote clusters, and a count in which none was skipped or cut short."""
    if not isinstance(value, dict):
        return value is None
    return not any(value.get(name) for name in ("skipped", "partial", "failed", "running"))


def some_hits(value: object) -> bool:
    """Match a list of hits of which each names its document."""
    hits = value.get("hits") if isinstance(value, dict) else None
    return isinstance(hits, list) and bool(hits) and all(isinstance(h, dict) and h.get("_id") for h in hits)


def no_hits(value: object) -> bool:
    """Match an empty list of hits whose total is nought, or was not asked for."""
    return isinstance(value, dict) and value.get("hits") == [] and _total(value) in {0, None}


def nothing_summed_up(value: object) -> bool:
    """Match one JSON object without aggregations, or with some that sum up a total of nought."""
    if not isinstance(value, dict):
        return False
    hits = value.get("hits")
    return not present(value.get("aggregations")) or (isinstance(hits, dict) and _total(hits) == 0)


def counted_hits(value: object) -> bool:
    """Match a list of hits that was left empty on purpose: their total is above nought."""
    return isinstance(value, dict) and value.get("hits") == [] and above_nought(_total(value))


def _total(hits: dict[str, Any]) -> int | None:
    """Read a total: 7.x and later count in an object, 6.x in a number; -1 is none that can be read."""
    total = hits.get("total")
    count = total.get("value") if isinstance(total, dict) else total
    return count if count is None or type(count) is int else -1


def above_nought(value: object) -> bool:
    """Match a count of at least one."""
    return type(value) is int and value > 0


def whole_search(value: object) -> bool:
    """Match a search's result that another reply carries, and that nothing is missing from."""
    return (
        isinstance(value, dict)
        and "error" not in value
        and value.get("status", 200) == 200  # noqa: PLR2004 - parts of a multi search name their own
        and value.get("timed_out") is False
        and every_shard(value.get("_shards"))
        and every_cluster(value.get("_clusters"))
    )


def whole_with_hits(value: object) -> bool:
    """Match such a result that found something."""
    return isinstance(value, dict) and whole_search(value) and some_hits(value.get("hits"))


def whole_without_hits(value: object) -> bool:
    """Match such a result that found nothing."""
    return (
        isinstance(value, dict)
        and whole_search(value)
        and no_hits(value.get("hits"))
        and not_true(value.get("terminated_early"))
    )


def every_search(value: object) -> bool:
    """Match a multi search of which each part is whole, and one has hits."""
    parts = value.get("responses") if isinstance(value, dict) else None
    return (
        isinstance(parts, list)
        and any(map(whole_with_hits, parts))
        and all(whole_with_hits(part) or whole_without_hits(part) for part in parts)
    )


def every_search_empty(value: object) -> bool:
    """Match a multi search of which each part is whole and has no hits."""
    parts = value.get("responses") if isinstance(value, dict) else None
    return isinstance(parts, list) and bool(parts) and all(map(whole_without_hits, parts))


def a_table(value: object) -> bool:
    """Match columns with rows below them, of which nothing is missing: ES|QL has values, SQL rows."""
    if not isinstance(value, dict) or value.get("is_partial") or value.get("is_running"):
        return False
    rows = value.get("values", value.get("rows"))
    columns = value.get("columns")
    return all(isinstance(part, list) and part for part in (columns, rows)) and "error" not in value


def every_item_done(value: object) -> bool:
    """Match a bulk request's items of which each names a status of success."""
    items = value.get("items") if isinstance(value, dict) else None
    return isinstance(items, list) and bool(items) and all(map(_item_done, items))


def _item_done(item: object) -> bool:
    results = list(item.values()) if isinstance(item, dict) else []
    return bool(results) and all(
        isinstance(result, dict) and result.get("status") in (200, 201) and "error" not in result
        for result in results
    )


def lost_shards(value: object) -> bool:
    """Match a shard count in which a shard failed or was left out."""
    return isinstance(value, dict) and not every_shard(value)


def lost_clusters(value: object) -> bool:
    """Match a count of remote clusters in which one was skipped or cut short."""
    return not every_cluster(value)


def unlicensed(value: object) -> bool:
    """Match an error that names the feature which the licence does not cover."""
    return isinstance(value, dict) and "license.expired.feature" in value


def closed_block(value: object) -> bool:
    """Match the block that stands for a closed index: its number is 4, its name may be spelled anew."""
    reason = value.get("reason") if isinstance(value, dict) else None
    return isinstance(reason, str) and "/4/index closed" in reason


BOOK: Final = RuleBook(
    domain="search",
    codes=("error.root_cause.type", "error.type", "error.caused_by.type"),
    request_ids=("x-request-id", "x-cloud-request-id", "x-amzn-requestid", "x-opaque-id"),
    writes=False,
    rules=(
        # The proof of success.
        Rule(
            id="search/found",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={
                    "": an_object,
                    "timed_out": False,
                    "_shards": every_shard,
                    "hits": some_hits,
                    "_clusters": every_cluster,
                    "error": None,
                },
            ),
            reason=Reason.COMPLETED,
            say="The search found something.",
            why="Every shard and cluster answered in time and hits are there; terminate_after is what was asked.",
            source=SEARCH_API,
        ),
        Rule(
            id="search/found-several",
            when=When(status=200, header={"content-type": json_or_unnamed}, body={"": every_search}),
            reason=Reason.COMPLETED,
            say="The searches found something.",
            why="A multi search is a 200 whatever came of its parts: each must be whole, and one must have hits.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-msearch",
        ),
        Rule(
            id="search/found-async",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={"": an_object, "is_running": False, "is_partial": False, "response": whole_with_hits},
            ),
            reason=Reason.COMPLETED,
            say="The search found something.",
            why="An async search says of itself that it has ended and that nothing is left out.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-async-search-get",
        ),
        Rule(
            id="search/summed-up",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={
                    "": an_object,
                    "timed_out": False,
                    "_shards": every_shard,
                    "hits": counted_hits,
                    "aggregations": present,
                    "_clusters": every_cluster,
                    "error": None,
                },
            ),
            reason=Reason.COMPLETED,
            say="The search summed up what there is.",
            why="Aggregations are asked for with size 0: no hits are listed, and their total is not nought.",
            source="https://www.elastic.co/docs/explore-analyze/query-filter/aggregations",
        ),
        Rule(
            id="search/counted",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={"": an_object, "count": above_nought, "_shards": every_shard, "error": None},
            ),
            reason=Reason.COMPLETED,
            say="The search counted what there is.",
            why="A count of all shards is the whole answer.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-count",
        ),
        Rule(
            id="search/found-rows",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={"": a_table, "_clusters": every_cluster},
            ),
            reason=Reason.COMPLETED,
            say="The search found something.",
            why="ES|QL and SQL answer with columns and rows, and say so if a part is missing.",
            source="https://www.elastic.co/docs/reference/query-languages/esql/esql-rest",
        ),
        Rule(
            id="search/stored",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={"errors": False, "": every_item_done},
            ),
            reason=Reason.COMPLETED,
            say="Everything was stored.",
            why="A bulk request is a 200 whatever came of its items: its own flag and each of them must say so.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk",
        ),
        # A 200 that saw only part of the data proves neither hits nor their absence.
        Rule(
            id="search/cut-off",
            when=When(status=200, body={"timed_out|response.timed_out|responses.timed_out": True}),
            reason=Reason.TRANSIENT,
            say="The search ran out of time before it had looked everywhere. A narrower query would help.",
            why="Hits may be missing, and another query or a quieter moment finds them.",
            source=SEARCH_API,
        ),
        Rule(
            id="search/parts-missing",
            when=When(status=200, body={"_shards|response._shards|responses._shards": lost_shards}),
            reason=Reason.TRANSIENT,
            say="Part of the search did not answer, so something may be missing. Waiting a little would help.",
            why="Shards fail over: the same query later sees all of the data.",
            source="https://www.elastic.co/docs/reference/elasticsearch/rest-apis/search-shard-routing",
        ),
        Rule(
            id="search/clusters-missing",
            when=When(status=200, body={"_clusters|response._clusters|responses._clusters": lost_clusters}),
            reason=Reason.TRANSIENT,
            say="One of the places to search did not answer, so something may be missing. Waiting would help.",
            why="A skipped remote cluster leaves no failed shard behind, only this count.",
            source="https://www.elastic.co/docs/explore-analyze/cross-cluster-search",
        ),
        Rule(
            id="search/still-running",
            when=When(status=range(200, 300), body={"is_running|is_partial": True}),
            reason=Reason.TRANSIENT,
            say="The search has not ended yet. Waiting a little would help.",
            why="An async search answers before it is done, with what it has so far.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-async-search-submit",
        ),
        Rule(
            id="search/parts-refused",
            when=When(status=200, body={"errors": True}),
            reason=Reason.TRANSIENT,
            say="Part of the request was not carried out. Other details would help.",
            why="A bulk request is a 200 whatever came of its items; some passed.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-bulk",
        ),
        Rule(
            id="search/nothing-found",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={
                    "": nothing_summed_up,
                    "timed_out": False,
                    "_shards": every_shard,
                    "hits": no_hits,
                    "_clusters": every_cluster,
                    "terminated_early": not_true,
                    "error": None,
                },
            ),
            reason=Reason.FATAL,
            say="Nothing was found for this search.",
            why="Every shard answered in time: a dead end, and the same search never finds more.",
            source=SEARCH_API,
        ),
        Rule(
            id="search/nothing-found-several",
            when=When(status=200, header={"content-type": json_or_unnamed}, body={"": every_search_empty}),
            reason=Reason.FATAL,
            say="Nothing was found for these searches.",
            why="Every part of the multi search is whole and empty.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-msearch",
        ),
        Rule(
            id="search/nothing-found-async",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={
                    "": an_object,
                    "is_running": False,
                    "is_partial": False,
                    "response": whole_without_hits,
                },
            ),
            reason=Reason.FATAL,
            say="Nothing was found for this search.",
            why="The async search has ended, whole and empty.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-async-search-get",
        ),
        Rule(
            id="search/nothing-counted",
            when=When(
                status=200,
                header={"content-type": json_or_unnamed},
                body={"": an_object, "count": 0, "_shards": every_shard, "error": None},
            ),
            reason=Reason.FATAL,
            say="Nothing was found for this search.",
            why="A count of all shards that is nought is a dead end like a page without hits.",
            source="https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-count",
        ),
        # Elasticsearch's own "not now", whatever it names as the cause.
        Rule(
            id="search/busy",
            when=When(status=429, body={"error.type": present, "status": 429}),
            reason=Reason.TRANSIENT,
            say="The search service is busy at the moment. Waiting a little would help.",
            why="Full queues, memory breakers and a full disk all answer 429 until they recover.",
            source="https://www.elastic.co/docs/troubleshoot/elasticsearch/rejected-requests",
        ),
        # Who may search, and what.
        Rule(
            id="search/credentials",
            when=When(status=401),
            reason=Reason.FATAL,
            say="The search service did not accept our access. Its setup has to be looked at.",
            why="The key is missing, wrong or expired; no query mends it.",
            source="https://www.elastic.co/docs/deploy-manage/api-keys/elasticsearch-api-keys",
        ),
        Rule(
            id="search/plan",
            when=When(status=403, body={CAUSE: unlicensed}),
            reason=Reason.POLICY_BLOCK,
            say="This kind of search is not part of our plan with the search service.",
            why="The licence has expired or does not cover the feature.",
            source="https://github.com/elastic/elasticsearch/blob/main/x-pack/plugin/core/src/main/java/org/elasticsearch/license/LicenseUtils.java",
        ),
        Rule(
            id="search/not-permitted",
            when=When(
                status=403,
                body={
                    NAME: (
                        "open_search_security_exception",
                        "opensearch_security_exception",
                        "role_restriction_exception",
                        "security_exception",
                    )
                },
            ),
            reason=Reason.POLICY_BLOCK,
            say="We are not permitted to search there.",
            why="The credential is valid and its roles do not allow this.",
            source="https://www.elastic.co/docs/deploy-manage/users-roles/cluster-or-deployment-auth/user-roles",
        ),
        Rule(
            id="search/closed-block",
            when=When(status=403, body={NAME: ("cluster_block_exception",), CAUSE: closed_block}),
            reason=Reason.FATAL,
            say="What is searched there is closed. Its setup has to be looked at.",
            why="A closed index answers no query until an operator opens it.",
            source=f"{ELASTIC}cluster/metadata/MetadataIndexStateService.java",
        ),
        Rule(
            id="search/blocked",
            when=When(
                status=403,
                body={NAME: ("cluster_block_exception", "index_create_block_exception")},
            ),
            reason=Reason.POLICY_BLOCK,
            say="Searching there is switched off at the moment by those who run it.",
            why="An operator's block (read, metadata, read-only) refuses with 403 until it is taken away.",
            source="https://www.elastic.co/docs/reference/elasticsearch/index-settings/index-block",
        ),
        # What is set up wrongly: no query of the model reaches anything.
        Rule(
            id="search/no-index",
            when=When(
                status=range(400, 500),
                body={
                    NAME: (
                        "aliases_not_found_exception",
                        "index_closed_exception",
                        "index_not_found_exception",
                        "index_template_missing_exception",
                        "no_such_remote_cluster_exception",
                        "repository_missing_exception",
                        "resource_not_found_exception",
                        "snapshot_missing_exception",
                        "type_missing_exception",
                        "view_not_found_exception",
                    )
                },
            ),
            reason=Reason.FATAL,
            say="What should be searched is not there. Its setup has to be looked at.",
            why="The index is configuration here, not the model's choice: no query brings it back.",
            source=f"{ELASTIC}index/IndexNotFoundException.java",
        ),
        Rule(
            id="search/wrong-request",
            when=When(
                status=range(400, 500),
                body={
                    NAME: (
                        "api_not_available_exception",
                        "http_request_on_transport_exception",
                        "media_type_header_exception",
                    )
                },
            ),
            reason=Reason.FATAL,
            say="The search service cannot be used this way. Its setup has to be looked at.",
            why="The tool speaks another version, another format or to another port than the server.",
            source="https://www.elastic.co/docs/reference/elasticsearch/rest-apis/compatibility",
        ),
        Rule(
            id="search/no-endpoint",
            when=When(status=400, body={"error": re.compile(r"^no handler found for uri")}),
            reason=Reason.FATAL,
            say="The search service has no such function. Its setup has to be looked at.",
            why="The path is the tool's, not the model's. The error is a bare string.",
            source=f"{ELASTIC}rest/RestController.java",
        ),
        Rule(
            id="search/wrong-port",
            when=When(status=400, body=re.compile(r"This is not an? HTTPS? port")),
            reason=Reason.FATAL,
            say="The search service cannot be reached as it is set up.",
            why="The address names the port on which nodes speak to each other; the reply is plain text.",
            source=f"{ELASTIC}transport/TcpTransport.java",
        ),
        # What another query changes.
        Rule(
            id="search/query",
            when=When(
                status=range(400, 600),
                body={
                    NAME: (
                        "action_request_validation_exception",
                        "aggregation_execution_exception",
                        "aggregation_initialization_exception",
                        "alias_filter_parsing_exception",
                        "arithmetic_exception",
                        "array_index_out_of_bounds_exception",
                        "class_cast_exception",
                        "date_time_exception",
                        "date_time_parse_exception",
                        "document_missing_exception",
                        "document_parsing_exception",
                        "document_source_missing_exception",
                        "esql_illegal_argument_exception",
                        "general_script_exception",
                        "generation_exception",
                        "illegal_argument_exception",
                        "index_out_of_bounds_exception",
                        "input_coercion_exception",
                        "invalid_aggregation_path_exception",
                        "invalid_alias_name_exception",
                        "invalid_index_name_exception",
                        "invalid_index_template_exception",
                        "invalid_path_exception",
                        "invalid_type_name_exception",
                        "json_e_o_f_exception",
                        "json_eof_exception",
                        "json_parse_exception",
                        "json_parsing_exception",
                        "mapper_parsing_exception",
                        "mapping_exception",
                        "named_object_not_found_exception",
                        "null_pointer_exception",
                        "number_format_exception",
                        "parse_exception",
                        "parsing_exception",
                        "pattern_syntax_exception",
                        "ql_illegal_argument_exception",
                        "query_parsing_exception",
                        "query_phase_execution_exception",
                        "query_shard_exception",
                        "response_limit_breached_exception",
                        "routing_missing_exception",
                        "script_exception",
                        "search_parse_exception",
                        "search_pipeline_processing_exception",
                        "search_source_builder_exception",
                        "sql_illegal_argument_exception",
                        "stack_overflow_error",
                        "strict_dynamic_mapping_exception",
                        "string_index_out_of_bounds_exception",
                        "timestamp_parsing_exception",
                        "too_complex_to_determinize_exception",
                        "too_many_buckets_exception",
                        "too_many_clauses",
                        "too_many_nested_clauses",
                        "unknown_named_object_exception",
                        "unsupported_aggregation_on_downsampled_index",
                        "unsupported_operation_exception",
                        "validation_exception",
                        "verification_exception",
                        "version_conflict_engine_exception",
                        "x_content_e_o_f_exception",
                        "x_content_parse_exception",
                    )
                },
            ),
            reason=Reason.TRANSIENT,
            say="The search service could not read this query. Simpler or other words would help.",
            why="The query's wording caused it, with 400 or, where a shard stumbles over it, with 500.",
            source="https://www.elastic.co/docs/reference/query-languages/querydsl",
        ),
        # What a moment changes.
        Rule(
            id="search/overloaded",
            when=When(
                status=range(500, 600),
                body={
                    NAME: (
                        "circuit_breaking_exception",
                        "cluster_manager_throttling_exception",
                        "es_rejected_execution_exception",
                        "node_duress_exception",
                        "open_search_rejected_execution_exception",
                        "opensearch_rejected_execution_exception",
                        "out_of_memory_error",
                        "rejected_execution_exception",
                        "too_many_scroll_contexts_exception",
                    )
                },
            ),
            reason=Reason.TRANSIENT,
            say="The search service has too much to do at the moment. Waiting a little would help.",
            why="Older versions answered 500 and 503 where newer ones say 429.",
            source=f"{ELASTIC}common/breaker/CircuitBreakingException.java",
        ),
        Rule(
            id="search/unavailable",
            when=When(
                status=range(400, 600),
                body={
                    NAME: (
                        "action_transport_exception",
                        "already_closed_exception",
                        "authentication_processing_error",
                        "broadcast_shard_operation_failed_exception",
                        "cluster_block_exception",
                        "cluster_manager_not_discovered_exception",
                        "concurrent_snapshot_execution_exception",
                        "connect_exception",
                        "connect_transport_exception",
                        "coordination_state_rejected_exception",
                        "delay_recovery_exception",
                        "dfs_phase_execution_exception",
                        "execution_cancelled_exception",
                        "failed_node_exception",
                        "failed_to_commit_cluster_state_exception",
                        "fetch_phase_execution_exception",
                        "health_node_not_discovered_exception",
                        "illegal_index_shard_state_exception",
                        "illegal_shard_routing_state_exception",
                        "incompatible_cluster_state_version_exception",
                        "index_primary_shard_not_allocated_exception",
                        "index_shard_closed_exception",
                        "index_shard_not_recovering_exception",
                        "index_shard_not_started_exception",
                        "index_shard_recovering_exception",
                        "index_shard_recovery_exception",
                        "index_shard_relocated_exception",
                        "index_shard_started_exception",
                        "interrupted_exception",
                        "lock_obtain_failed_exception",
                        "master_not_discovered_exception",
                        "no_longer_primary_shard_exception",
                        "no_node_available_exception",
                        "no_seed_node_left_exception",
                        "no_shard_available_action_exception",
                        "no_such_node_exception",
                        "node_closed_exception",
                        "node_decommissioned_exception",
                        "node_disconnected_exception",
                        "node_health_check_failure_exception",
                        "node_not_connected_exception",
                        "node_should_not_connect_exception",
                        "node_weighed_away_exception",
                        "not_cluster_manager_exception",
                        "not_master_exception",
                        "peer_recovery_not_found",
                        "primary_missing_action_exception",
                        "primary_shard_closed_exception",
                        "process_cluster_event_timeout_exception",
                        "receive_timeout_transport_exception",
                        "recover_files_recovery_exception",
                        "recovery_commit_too_new_exception",
                        "recovery_failed_exception",
                        "reduce_search_phase_exception",
                        "remote_transport_exception",
                        "replication_failed_exception",
                        "repository_conflict_exception",
                        "response_handler_failure_transport_exception",
                        "retry_on_primary_exception",
                        "retry_on_replica_exception",
                        "routing_exception",
                        "search_context_missing_exception",
                        "search_timeout_exception",
                        "send_request_transport_exception",
                        "shard_lock_obtain_failed_exception",
                        "shard_not_found_exception",
                        "shard_not_in_primary_mode_exception",
                        "snapshot_in_progress_exception",
                        "socket_timeout_exception",
                        "task_cancelled_exception",
                        "time_exceeded_exception",
                        "timeout_exception",
                        "transport_exception",
                        "unavailable_shards_exception",
                        "version_conflict_exception",
                        "version_mismatch_exception",
                    )
                },
            ),
            reason=Reason.TRANSIENT,
            say="The search service is not able to answer at the moment. Waiting a little would help.",
            why="A cluster, node or shard is starting, moving or gone for now; some of these are a 404 or 409.",
            source=f"{ELASTIC}ElasticsearchException.java",
        ),
        # What neither a query nor a moment changes.
        Rule(
            id="search/internal",
            when=When(
                status=range(400, 600),
                body={
                    NAME: (
                        "access_control_exception",
                        "access_denied_exception",
                        "action_not_found_transport_exception",
                        "bind_http_exception",
                        "bind_transport_exception",
                        "corrupt_index_exception",
                        "crypto_registry_exception",
                        "decommissioning_failed_exception",
                        "engine_creation_failure_exception",
                        "file_not_found_exception",
                        "file_system_exception",
                        "flush_failed_engine_exception",
                        "index_format_too_new_exception",
                        "index_format_too_old_exception",
                        "index_shard_restore_exception",
                        "index_shard_restore_failed_exception",
                        "index_shard_snapshot_exception",
                        "index_shard_snapshot_failed_exception",
                        "mapper_exception",
                        "no_class_settings_exception",
                        "no_such_file_exception",
                        "not_serializable_transport_exception",
                        "recovery_engine_exception",
                        "refresh_failed_engine_exception",
                        "repository_exception",
                        "repository_verification_exception",
                        "retention_lease_already_exists_exception",
                        "retention_lease_invalid_retaining_seq_no_exception",
                        "retention_lease_not_found_exception",
                        "settings_exception",
                        "snapshot_creation_exception",
                        "snapshot_exception",
                        "snapshot_failed_engine_exception",
                        "snapshot_in_use_deletion_exception",
                        "snapshot_name_already_in_use_exception",
                        "snapshot_restore_exception",
                        "translog_corrupted_exception",
                        "translog_exception",
                        "truncated_translog_exception",
                        "unsupported_weighted_routing_state_exception",
                    )
                },
            ),
            reason=Reason.FATAL,
            say="The search service has a fault of its own. Those who run it have to look at it.",
            why="Damaged files, snapshots and node settings are no matter of the query and do not heal by waiting.",
            source=f"{ELASTIC}ElasticsearchException.java",
        ),
        # The status, where a search differs from other calls.
        Rule(
            id="search/not-found",
            when=When(status=404),
            reason=Reason.FATAL,
            say="What should be searched is not there. Its setup has to be looked at.",
            why="Every name in the address of a search is configuration, never the model's argument.",
            source=SEARCH_API,
        ),
        *INFRASTRUCTURE,
    ),
    picked=(
        Rule(
            id="search/empty-query",
            reason=Reason.TRANSIENT,
            say="There is nothing to search for yet. Some words to look for would help.",
            why="Without words every document matches: no answer to any question. Nothing was sent.",
            source="https://www.elastic.co/docs/reference/query-languages/query-dsl/query-dsl-match-query",
        ),
        Rule(
            id="search/long-query",
            reason=Reason.TRANSIENT,
            say="These are too many words for one search. A few telling ones would help.",
            why="Every word is a clause, and the service refuses queries of too many. Nothing was sent.",
            source="https://www.elastic.co/docs/reference/elasticsearch/configuration-reference/search-settings",
        ),
    ),
)
"""The table."""
