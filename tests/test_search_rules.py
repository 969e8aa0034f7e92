"""Elasticsearch's vocabulary, translated."""

import json
from typing import Any

import httpx
import pytest

from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Reply
from domains.search.rules import BOOK, NAME
from orchestration.outcomes import Outcome
from orchestration.reasons import Effect, Reason

C, T, F, P = Reason.COMPLETED, Reason.TRANSIENT, Reason.FATAL, Reason.POLICY_BLOCK
INFRA = "infra"
VENDOR_JSON = "application/vnd.elasticsearch+json;compatible-with=8"
SHARDS = {"total": 5, "successful": 5, "skipped": 0, "failed": 0}
HIT = {"_index": "docs", "_id": "1", "_score": 1.0, "_source": {"title": "hello"}}
NO_HITS: dict[str, Any] = {"total": {"value": 0, "relation": "eq"}, "max_score": None, "hits": []}
SIZE_0: dict[str, Any] = {"total": {"value": 7, "relation": "eq"}, "max_score": None, "hits": []}
SUMS: dict[str, Any] = {"aggregations": {"by_brand": {"buckets": [{"key": "a", "doc_count": 7}]}}}
STORED = {"index": {"_index": "docs", "_id": "1", "result": "created", "status": 201}}
ONE_HIT: dict[str, Any] = {"total": {"value": 1, "relation": "eq"}, "max_score": 1.0, "hits": [HIT]}


def classify(status: int, body: object, media_type: str | None = VENDOR_JSON, **headers: str) -> Outcome:
    """Classify what a server would send."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    named = {} if media_type is None else {"content-type": media_type}
    response = httpx.Response(status, headers={**named, **headers}, content=content)
    return BOOK.classify(Reply(response=response))


def row(outcome: Outcome) -> str:
    """Return the row that decided; what every domain shares counts as one."""
    return INFRA if outcome.rule.startswith("infra/") else outcome.rule


def error(status: int, name: str, reason: str = "reason text", **more: object) -> dict[str, Any]:
    """Return an error body as Elasticsearch writes it."""
    cause = {"type": name, "reason": reason, **more}
    return {"error": {"root_cause": [cause], **cause}, "status": status}


def wrapped(
    status: int, name: str, *, root: bool = True, shards: bool = True, cause: bool = False
) -> dict[str, Any]:
    """Return the error of a search in which every shard failed for one reason."""
    inner = {"type": name, "reason": "reason text", "index": "docs"}
    outer: dict[str, Any] = {"type": "search_phase_execution_exception", "reason": "all shards failed"}
    outer["root_cause"] = [inner] if root else []
    outer["failed_shards"] = [{"shard": 0, "index": "docs", "reason": inner}] if shards else []
    return {"error": {**outer, **({"caused_by": inner} if cause else {})}, "status": status}


def found(**changes: object) -> dict[str, Any]:
    """Return the body of a search that ran, with fields changed; None takes one out."""
    body = {"took": 5, "timed_out": False, "_shards": SHARDS, "hits": ONE_HIT, **changes}
    return {name: value for name, value in body.items() if value is not None}


NAMES: tuple[tuple[Reason, str, int, str], ...] = (
    # The query, or a bug that another query avoids.
    (T, "search/query", 400, "illegal_argument_exception parsing_exception parse_exception script_exception"),
    (
        T,
        "search/query",
        400,
        "query_shard_exception x_content_parse_exception named_object_not_found_exception",
    ),
    (T, "search/query", 400, "number_format_exception json_parse_exception json_e_o_f_exception"),
    (
        T,
        "search/query",
        400,
        "mapper_parsing_exception document_parsing_exception strict_dynamic_mapping_exception",
    ),
    (
        T,
        "search/query",
        400,
        "input_coercion_exception invalid_index_name_exception invalid_alias_name_exception",
    ),
    (T, "search/query", 400, "invalid_type_name_exception invalid_index_template_exception too_many_clauses"),
    (
        T,
        "search/query",
        400,
        "action_request_validation_exception verification_exception validation_exception",
    ),
    (
        T,
        "search/query",
        400,
        "routing_missing_exception timestamp_parsing_exception date_time_parse_exception",
    ),
    (T, "search/query", 400, "unsupported_aggregation_on_downsampled_index alias_filter_parsing_exception"),
    (T, "search/query", 400, "too_many_buckets_exception too_complex_to_determinize_exception"),
    (T, "search/query", 404, "document_missing_exception document_source_missing_exception"),
    (T, "search/query", 409, "version_conflict_engine_exception"),
    (T, "search/query", 500, "aggregation_initialization_exception aggregation_execution_exception"),
    (T, "search/query", 500, "invalid_aggregation_path_exception search_source_builder_exception"),
    (T, "search/query", 500, "general_script_exception query_phase_execution_exception generation_exception"),
    (
        T,
        "search/query",
        500,
        "class_cast_exception null_pointer_exception array_index_out_of_bounds_exception",
    ),
    (T, "search/query", 500, "search_pipeline_processing_exception unsupported_operation_exception"),
    (T, "search/query", 503, "too_many_buckets_exception"),
    # A full queue, by the versions that answered 500 or 503, and by those that answer 429.
    (T, "search/overloaded", 500, "circuit_breaking_exception out_of_memory_error"),
    (T, "search/overloaded", 503, "circuit_breaking_exception es_rejected_execution_exception"),
    (T, "search/overloaded", 503, "rejected_execution_exception open_search_rejected_execution_exception"),
    (T, "search/busy", 429, "circuit_breaking_exception es_rejected_execution_exception"),
    (T, "search/busy", 429, "too_many_scroll_contexts_exception cluster_manager_throttling_exception"),
    (T, "search/busy", 429, "cluster_block_exception timeout_exception status_exception snapshot_exception"),
    # A cluster, a node or a shard that is not there yet, or no longer.
    (T, "search/unavailable", 500, "dfs_phase_execution_exception fetch_phase_execution_exception"),
    (T, "search/unavailable", 500, "connect_transport_exception node_disconnected_exception"),
    (T, "search/unavailable", 500, "node_not_connected_exception send_request_transport_exception"),
    (T, "search/unavailable", 500, "receive_timeout_transport_exception remote_transport_exception"),
    (T, "search/unavailable", 500, "response_handler_failure_transport_exception action_transport_exception"),
    (T, "search/unavailable", 500, "transport_exception failed_node_exception no_such_node_exception"),
    (
        T,
        "search/unavailable",
        500,
        "not_master_exception not_cluster_manager_exception node_closed_exception",
    ),
    (T, "search/unavailable", 500, "failed_to_commit_cluster_state_exception recovery_failed_exception"),
    (T, "search/unavailable", 500, "no_longer_primary_shard_exception coordination_state_rejected_exception"),
    (T, "search/unavailable", 500, "version_mismatch_exception already_closed_exception timeout_exception"),
    (T, "search/unavailable", 500, "node_health_check_failure_exception delay_recovery_exception"),
    (T, "search/unavailable", 500, "shard_lock_obtain_failed_exception execution_cancelled_exception"),
    (T, "search/unavailable", 500, "incompatible_cluster_state_version_exception routing_exception"),
    (T, "search/unavailable", 400, "task_cancelled_exception snapshot_in_progress_exception"),
    (T, "search/unavailable", 404, "index_shard_started_exception index_shard_relocated_exception"),
    (T, "search/unavailable", 404, "index_shard_not_recovering_exception index_shard_closed_exception"),
    (T, "search/unavailable", 404, "index_shard_not_started_exception index_shard_recovering_exception"),
    (T, "search/unavailable", 404, "illegal_index_shard_state_exception shard_not_found_exception"),
    (T, "search/unavailable", 404, "shard_not_in_primary_mode_exception peer_recovery_not_found"),
    (T, "search/unavailable", 404, "search_context_missing_exception"),
    (
        T,
        "search/unavailable",
        409,
        "index_primary_shard_not_allocated_exception repository_conflict_exception",
    ),
    (T, "search/unavailable", 409, "version_conflict_exception"),
    (T, "search/unavailable", 503, "no_shard_available_action_exception unavailable_shards_exception"),
    (
        T,
        "search/unavailable",
        503,
        "master_not_discovered_exception cluster_manager_not_discovered_exception",
    ),
    (T, "search/unavailable", 503, "process_cluster_event_timeout_exception no_node_available_exception"),
    (T, "search/unavailable", 503, "cluster_block_exception concurrent_snapshot_execution_exception"),
    (T, "search/unavailable", 503, "authentication_processing_error health_node_not_discovered_exception"),
    # The set-up of the tool.
    (F, "search/no-index", 404, "index_not_found_exception aliases_not_found_exception"),
    (
        F,
        "search/no-index",
        404,
        "resource_not_found_exception type_missing_exception view_not_found_exception",
    ),
    (F, "search/no-index", 404, "repository_missing_exception snapshot_missing_exception"),
    (F, "search/no-index", 404, "no_such_remote_cluster_exception index_template_missing_exception"),
    (F, "search/no-index", 400, "index_closed_exception"),
    (F, "search/wrong-request", 400, "media_type_header_exception http_request_on_transport_exception"),
    (F, "search/wrong-request", 410, "api_not_available_exception"),
    (F, "search/credentials", 401, "security_exception http_headers_validation_exception"),
    # The service's own faults.
    (F, "search/internal", 500, "not_serializable_transport_exception action_not_found_transport_exception"),
    (F, "search/internal", 500, "mapper_exception settings_exception no_class_settings_exception"),
    (
        F,
        "search/internal",
        500,
        "translog_corrupted_exception translog_exception truncated_translog_exception",
    ),
    (F, "search/internal", 500, "recovery_engine_exception refresh_failed_engine_exception"),
    (F, "search/internal", 500, "flush_failed_engine_exception engine_creation_failure_exception"),
    (F, "search/internal", 500, "index_shard_snapshot_exception index_shard_snapshot_failed_exception"),
    (F, "search/internal", 500, "index_shard_restore_exception index_shard_restore_failed_exception"),
    (F, "search/internal", 500, "snapshot_exception snapshot_creation_exception snapshot_restore_exception"),
    (F, "search/internal", 500, "bind_transport_exception bind_http_exception repository_exception"),
    (F, "search/internal", 500, "corrupt_index_exception file_not_found_exception no_such_file_exception"),
    (F, "search/internal", 500, "index_format_too_old_exception repository_verification_exception"),
    (
        F,
        "search/internal",
        400,
        "retention_lease_already_exists_exception snapshot_name_already_in_use_exception",
    ),
    (F, "search/internal", 400, "retention_lease_invalid_retaining_seq_no_exception"),
    (F, "search/internal", 404, "retention_lease_not_found_exception"),
    # Somebody's rule.
    (P, "search/not-permitted", 403, "security_exception role_restriction_exception"),
    (P, "search/not-permitted", 403, "open_search_security_exception"),
    (P, "search/blocked", 403, "cluster_block_exception index_create_block_exception"),
    # Names that say nothing: the status decides.
    (T, INFRA, 400, "status_exception index_creation_exception invalid_snapshot_name_exception"),
    (T, INFRA, 400, "resource_already_exists_exception something_new_exception"),
    (F, "search/not-found", 404, "status_exception something_new_exception"),
    (P, INFRA, 403, "status_exception something_new_exception"),
    (T, INFRA, 500, "exception illegal_state_exception engine_exception search_exception"),
    (T, INFRA, 500, "i_o_exception e_o_f_exception security_exception blob_store_exception"),
    (T, INFRA, 500, "uncategorized_execution_exception not_serializable_exception_wrapper"),
    (T, INFRA, 500, "http_exception transport_serialization_exception something_new_exception"),
    (T, INFRA, 503, "status_exception search_phase_execution_exception"),
)
"""Reason, row, status, and the names that a server gives with it."""

BODIES: tuple[tuple[str, Reason, str, int, object], ...] = (
    ("a hit", C, "search/found", 200, found()),
    ("a total as a number, up to 6.x", C, "search/found", 200, found(hits={**ONE_HIT, "total": 1})),
    ("no total at all", C, "search/found", 200, found(hits={"max_score": 1.0, "hits": [HIT]})),
    ("stopped at terminate_after", C, "search/found", 200, found(terminated_early=True)),
    ("shards skipped as out of range", C, "search/found", 200, found(_shards={**SHARDS, "skipped": 3})),
    (
        "all remote clusters",
        C,
        "search/found",
        200,
        found(_clusters={"total": 2, "successful": 2, "skipped": 0}),
    ),
    (
        "an async search at its end",
        C,
        "search/found-async",
        200,
        {"is_partial": False, "is_running": False, "response": found()},
    ),
    (
        "every part of a multi search",
        C,
        "search/found-several",
        200,
        {"took": 1, "responses": [found(status=200)] * 2},
    ),
    (
        "a multi search with hits in one of its whole parts",
        C,
        "search/found-several",
        200,
        {"responses": [found(status=200), found(status=200, hits=NO_HITS)]},
    ),
    ("aggregations alone", C, "search/summed-up", 200, found(hits=SIZE_0, **SUMS)),
    (
        "aggregations, at least so many",
        C,
        "search/summed-up",
        200,
        found(hits={**SIZE_0, "total": 9}, **SUMS),
    ),
    ("a count", C, "search/counted", 200, {"count": 7, "_shards": SHARDS}),
    (
        "values of ES|QL",
        C,
        "search/found-rows",
        200,
        {"is_partial": False, "columns": [{}], "values": [["x"]]},
    ),
    ("rows of SQL", C, "search/found-rows", 200, {"columns": [{}], "rows": [["x"]], "cursor": "abc"}),
    ("each item of a bulk request", C, "search/stored", 200, {"errors": False, "items": [STORED, STORED]}),
    ("no hits", F, "search/nothing-found", 200, found(hits=NO_HITS)),
    ("no hits, nothing summed up", F, "search/nothing-found", 200, found(hits=NO_HITS, **SUMS)),
    (
        "a multi search without hits",
        F,
        "search/nothing-found-several",
        200,
        {"responses": [found(status=200, hits=NO_HITS)] * 2},
    ),
    (
        "an async search without hits",
        F,
        "search/nothing-found-async",
        200,
        {"is_partial": False, "is_running": False, "response": found(hits=NO_HITS)},
    ),
    ("a count of nought", F, "search/nothing-counted", 200, {"count": 0, "_shards": SHARDS}),
    ("no hits, the total a number", F, "search/nothing-found", 200, found(hits={**NO_HITS, "total": 0})),
    ("no hits and no total", F, "search/nothing-found", 200, found(hits={"hits": []})),
    (
        "no hits in no shard",
        F,
        "search/nothing-found",
        200,
        found(hits=NO_HITS, _shards={**SHARDS, "total": 0, "successful": 0}),
    ),
    ("time out without hits", T, "search/cut-off", 200, found(hits=NO_HITS, timed_out=True)),
    ("time out with hits", T, "search/cut-off", 200, found(timed_out=True)),
    (
        "a failed shard without hits",
        T,
        "search/parts-missing",
        200,
        found(hits=NO_HITS, _shards={**SHARDS, "successful": 4, "failed": 1}),
    ),
    (
        "a failed shard with hits",
        T,
        "search/parts-missing",
        200,
        found(_shards={**SHARDS, "successful": 4, "failed": 1}),
    ),
    (
        "a shard without a copy, up to 6.x",
        T,
        "search/parts-missing",
        200,
        found(_shards={**SHARDS, "successful": 4}),
    ),
    ("shards not counted", T, "search/parts-missing", 200, found(_shards={})),
    ("failures in another type", T, "search/parts-missing", 200, found(_shards={**SHARDS, "failed": "0"})),
    (
        "a skipped cluster",
        T,
        "search/clusters-missing",
        200,
        found(_clusters={"total": 2, "successful": 1, "skipped": 1}),
    ),
    (
        "a cluster cut short",
        T,
        "search/clusters-missing",
        200,
        found(_clusters={"total": 1, "successful": 0, "partial": 1}),
    ),
    (
        "an async search under way",
        T,
        "search/still-running",
        200,
        {"id": "x", "is_partial": True, "is_running": True, "response": found()},
    ),
    (
        "an async search that broke off",
        T,
        "search/still-running",
        200,
        {"is_partial": True, "is_running": False, "response": found(hits=NO_HITS)},
    ),
    (
        "a part of a multi search",
        T,
        INFRA,
        200,
        {"responses": [error(404, "index_not_found_exception"), found(status=200)]},
    ),
    (
        "a part of a multi search cut off",
        T,
        "search/cut-off",
        200,
        {"responses": [found(status=200, timed_out=True)]},
    ),
    (
        "items of a bulk request",
        T,
        "search/parts-refused",
        200,
        {"took": 1, "errors": True, "items": [{"index": {"status": 429}}]},
    ),
    ("aggregations cut off", T, "search/cut-off", 200, found(hits=SIZE_0, timed_out=True, **SUMS)),
    (
        "aggregations of fewer shards",
        T,
        "search/parts-missing",
        200,
        found(hits=SIZE_0, _shards={**SHARDS, "successful": 4}, **SUMS),
    ),
    ("aggregations without a total", T, INFRA, 200, found(hits={"hits": []}, **SUMS)),
    ("a total that cannot be read", T, INFRA, 200, found(hits={"total": "0", "hits": []})),
    ("a count that is no number", T, INFRA, 200, {"count": True, "_shards": SHARDS}),
    (
        "a count of fewer shards",
        T,
        "search/parts-missing",
        200,
        {"count": 7, "_shards": {**SHARDS, "successful": 4}},
    ),
    (
        "a part of a table",
        T,
        "search/still-running",
        200,
        {"is_partial": True, "columns": [{}], "values": [[1]]},
    ),
    (
        "a table without one of the clusters",
        T,
        "search/clusters-missing",
        200,
        {"columns": [{}], "values": [["x"]], "_clusters": {"total": 2, "successful": 1, "skipped": 1}},
    ),
    ("a table without rows", T, INFRA, 200, {"columns": [{}], "rows": []}),
    ("a table beside an error", T, INFRA, 200, {"columns": [{}], "rows": [[1]], "error": {"type": "x"}}),
    (
        "a bulk request whose flag and items differ",
        T,
        INFRA,
        200,
        {"errors": False, "items": [STORED, {"index": {"status": 429, "error": {"type": "x"}}}]},
    ),
    ("a bulk request without items", T, INFRA, 200, {"errors": False, "items": []}),
    ("items of no form", T, INFRA, 200, {"errors": False, "items": [{}]}),
    ("items that name no status", T, INFRA, 200, {"errors": False, "items": [{"index": 201}, "x"]}),
    ("items with an odd status", T, INFRA, 200, {"errors": False, "items": [{"index": {"status": [201]}}]}),
    ("a part with a status of its own", T, INFRA, 200, {"responses": [found(status=503)]}),
    ("no parts of a multi search", T, INFRA, 200, {"responses": []}),
    ("a bare list of empty searches", T, INFRA, 200, [found(hits=NO_HITS)]),
    ("no hits, ended early", T, INFRA, 200, found(hits=NO_HITS, terminated_early=True)),
    ("a total but no hits", T, INFRA, 200, found(hits={**NO_HITS, "total": {"value": 3, "relation": "eq"}})),
    ("hits without an id", T, INFRA, 200, found(hits={**ONE_HIT, "hits": [{"_source": {}}]})),
    ("hits beside an error", T, INFRA, 200, found(error={"type": "exception"})),
    ("no word about time", T, INFRA, 200, found(timed_out=None)),
    ("a result inside a search cut off", T, "search/cut-off", 200, {"timed_out": True, "response": found()}),
    (
        "no hits, a cluster skipped",
        T,
        "search/clusters-missing",
        200,
        found(hits=NO_HITS, _clusters={"total": 2, "skipped": 1}),
    ),
    ("another vendor's success", T, INFRA, 200, {"ok": True, "id": "T-9"}),
    ("an empty object", T, INFRA, 200, {}),
    ("a list", T, INFRA, 200, [found()]),
    ("half a body", T, INFRA, 200, json.dumps(found())[:-20]),
    ("nothing", T, INFRA, 200, ""),
    ("hits under another status", T, INFRA, 202, found()),
    ("a bare string", F, "search/not-found", 404, {"error": "alias [x] missing", "status": 404}),
    (
        "a media type, as a string",
        F,
        INFRA,
        406,
        {"error": "Content-Type header [text/plain] is not supported", "status": 406},
    ),
    ("a media type", F, INFRA, 415, error(415, "status_exception")),
    ("a method", F, INFRA, 405, {"error": "Incorrect HTTP method for uri [/x/_search]", "status": 405}),
    (
        "a path",
        F,
        "search/no-endpoint",
        400,
        {"error": "no handler found for uri [/x/_serch] and method [POST]"},
    ),
    ("a string of another kind", T, INFRA, 400, {"error": "request body is required", "status": 400}),
    ("the nodes' own port", F, "search/wrong-port", 400, "This is not an HTTP port"),
    (
        "a licence",
        P,
        "search/plan",
        403,
        error(403, "security_exception", **{"license.expired.feature": "ml"}),
    ),
    (
        "a closed index, as a block",
        F,
        "search/closed-block",
        403,
        error(403, "cluster_block_exception", "index [docs] blocked by: [FORBIDDEN/4/index closed];"),
    ),
    (
        "a read block",
        P,
        "search/blocked",
        403,
        error(403, "cluster_block_exception", "index [docs] blocked by: [FORBIDDEN/7/index read (api)];"),
    ),
    (
        "state not recovered",
        T,
        "search/unavailable",
        503,
        error(
            503,
            "cluster_block_exception",
            "blocked by: [SERVICE_UNAVAILABLE/1/state not recovered / initialized];",
        ),
    ),
    (
        "a full disk",
        T,
        "search/busy",
        429,
        error(
            429,
            "cluster_block_exception",
            "index [docs] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded flood-stage watermark];",
        ),
    ),
    ("shards that cannot read a query", T, "search/query", 400, wrapped(400, "query_shard_exception")),
    ("shards that reject", T, "search/busy", 429, wrapped(429, "es_rejected_execution_exception")),
    (
        "shards that reject, older",
        T,
        "search/overloaded",
        503,
        wrapped(503, "es_rejected_execution_exception"),
    ),
    ("shards whose files are damaged", F, "search/internal", 500, wrapped(500, "corrupt_index_exception")),
    (
        "shards' reasons without a root",
        T,
        "search/query",
        400,
        wrapped(400, "query_shard_exception", root=False),
    ),
    (
        "a cause alone",
        T,
        "search/query",
        503,
        wrapped(503, "too_many_buckets_exception", root=False, shards=False, cause=True),
    ),
    ("all shards failed, no reason", T, INFRA, 503, wrapped(503, "", root=False, shards=False)),
    ("a gateway's page", T, INFRA, 502, "<html><body>502 Bad Gateway</body></html>"),
)
"""What it is about, reason, row, status, body."""


@pytest.mark.parametrize(
    ("reason", "rule", "status", "name"),
    [(reason, rule, status, name) for reason, rule, status, names in NAMES for name in names.split()],
)
def test_names(reason: Reason, rule: str, status: int, name: str) -> None:
    """Every name that a server gives an error has its reason and its row."""
    outcome = classify(status, error(status, name))

    assert (reason, rule) == (outcome.reason, row(outcome))


@pytest.mark.parametrize(
    ("reason", "rule", "status", "body"), [pytest.param(*row, id=about) for about, *row in BODIES]
)
def test_bodies(reason: Reason, rule: str, status: int, body: object) -> None:
    """Where a name does not decide, the body's shape does."""
    outcome = classify(status, body)

    assert (reason, rule) == (outcome.reason, row(outcome))


def test_no_row_is_dead() -> None:
    """Each of the domain's own rows decides at least one of the replies above."""
    own = {rule.id for rule in BOOK.rules} - {rule.id for rule in INFRASTRUCTURE}
    decided = {example[1] for example in NAMES} | {example[2] for example in BODIES}

    assert set() == own - decided


def test_each_name_stands_once() -> None:
    """But for cluster blocks, whose status decides, no name stands in two rows."""
    wanted = [
        rule.when.body[NAME]
        for rule in BOOK.rules
        if isinstance(rule.when.body, dict) and NAME in rule.when.body
    ]
    names = [name for group in wanted for name in group]

    assert {"cluster_block_exception"} == {name for name in names if names.count(name) > 1}


@pytest.mark.parametrize("hits", [ONE_HIT, NO_HITS])
@pytest.mark.parametrize("media_type", ["text/html", "text/plain; charset=UTF-8", "application/cbor"])
def test_another_media_type_proves_nothing(hits: object, media_type: str) -> None:
    """A body that is not sent as JSON is neither hits nor their absence."""
    assert T is classify(200, found(hits=hits), media_type).reason


@pytest.mark.parametrize(
    "media_type", [None, VENDOR_JSON, "application/json", "application/json; charset=UTF-8"]
)
def test_media_types_of_json(media_type: str | None) -> None:
    """JSON goes by several media types, and by none behind some proxies."""
    assert C is classify(200, found(), media_type).reason


@pytest.mark.parametrize("status", [201, 202, 204, 206, 301, 404, 500])
def test_only_200_is_proof(status: int) -> None:
    """Hits under any other status are no answer to a search."""
    assert C is not classify(status, found()).reason


def test_a_read_changes_nothing() -> None:
    """Whatever comes back, or does not, a search has no effect."""
    replies = [
        Reply(error=httpx.ReadTimeout("late")),
        Reply(response=httpx.Response(500)),
        Reply(response=httpx.Response(200)),
    ]

    assert {Effect.NONE} == {BOOK.classify(reply).effect for reply in replies}


def test_the_wait_is_told() -> None:
    """The service's own seconds reach the reader."""
    outcome = classify(429, error(429, "es_rejected_execution_exception"), **{"retry-after": "7"})

    assert (7, True) == (outcome.retry_after_s, "about 7 seconds" in outcome.content)


def test_the_root_cause_is_the_vendors_code() -> None:
    """Logs name the cause, not the wrapper around it."""
    assert "query_shard_exception" == classify(400, wrapped(400, "query_shard_exception")).vendor_code


def test_the_vendors_prose_reaches_nobody() -> None:
    """What a server writes into `reason` is in no outcome's text."""
    bodies = [error(status, name, "PROSE") for _, _, status, names in NAMES for name in names.split()]

    assert [] == [body for body in bodies if "PROSE" in classify(body["status"], body).content]
