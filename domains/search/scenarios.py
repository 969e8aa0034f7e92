"""What must happen in a search, for the command line to play and the tests to check."""

from collections.abc import Mapping
from typing import Any, Final

from domains.scenario import Ask, Forced, Scenario, Turn
from orchestration.reasons import Reason

VENDOR: Final = "mocks.elasticsearch:ElasticsearchMock"
"""The fake that answers in these scenarios."""

SAMPLE: Final = Ask("search", {"query": "blue mug"})
"""A call that finds something if nothing is forced."""


def _refused(status: int, name: str, *, headers: Mapping[str, str] | None = None) -> Forced:
    """Answer with one of Elasticsearch's errors. Its prose stands in for all of the vendor's."""
    cause = {"type": name, "reason": "the vendor's own words, which nobody reads"}
    body = {"error": {"root_cause": [cause], **cause}, "status": status}
    return Forced(status=status, headers=headers or {}, body=body)


def _unread() -> Forced:
    """Answer as shards do that cannot read the query: the outer error says nothing of it."""
    cause = {"type": "query_shard_exception", "reason": "failed to create query", "index": "products"}
    shard = {"shard": 0, "index": "products", "node": "n1", "reason": cause}
    error = {
        "root_cause": [cause],
        "type": "search_phase_execution_exception",
        "reason": "all shards failed",
        "failed_shards": [shard],
    }
    return Forced(status=400, body={"error": error, "status": 400})


def _partial(*, timed_out: bool, failed: int) -> Forced:
    """Answer 200 after a look at part of the data."""
    body = {
        "took": 30,
        "timed_out": timed_out,
        "_shards": {"total": 3, "successful": 3 - failed, "skipped": 0, "failed": failed},
        "hits": {"total": {"value": 0, "relation": "eq"}, "max_score": None, "hits": []},
    }
    return Forced(status=200, body=body)


# The tool sends a read once more itself, so what the model is to see must happen twice.
_LOST: Final = Forced(kind="ReadTimeout", times=2)
_PAGE: Final = Forced(status=502, body="<html><head><title>502 Bad Gateway</title></head></html>", times=2)

FORCED: Final[Mapping[Reason, tuple[Mapping[str, Any], tuple[Forced, ...]]]] = {
    Reason.COMPLETED: ({}, ()),
    Reason.TRANSIENT: ({}, (_refused(429, "es_rejected_execution_exception"),)),
    Reason.FATAL: ({"index": "catalogue"}, ()),
    Reason.POLICY_BLOCK: ({}, (_refused(403, "security_exception"),)),
}
"""Reason -> settings of the fake and forced answers that make ``SAMPLE`` end with it."""

MUG: Final = (
    "Found 7 results, the best 5 of them:\n"
    "1. Blue mug [mug-1, price 19.99]: Stoneware coffee mug in deep blue, 350 ml, dishwasher safe.\n"
    "2. Mug set [mug-5, price 49.00]: Four stackable mugs in blue, green, grey and sand.\n"
    "3. Blue shirt [shirt-2, price 29.00]: Cotton T-shirt in blue, sizes S to XL.\n"
    "4. White mug [mug-2, price 14.50]: Plain porcelain mug for coffee or tea, 300 ml.\n"
    "5. Travel mug [mug-3, price 24.00]: Steel travel mug with lid, keeps coffee hot for six hours."
)
TEAPOT: Final = (
    "Found 1 result:\n"
    "1. Glass teapot [kettle-2, price 34.00]: Teapot of heat-proof glass with a strainer for loose tea."
)
NOTHING: Final = "Nothing was found for this search."
NOT_PERMITTED: Final = "We are not permitted to search there."
GONE: Final = "What should be searched is not there. Its setup has to be looked at."
BUSY: Final = (
    "The search service is busy at the moment. Waiting a little would help. The wait is about 7 seconds."
)
LATER: Final = "The search is not available right now. May I look again in a few minutes?"


def _ask(*queries: str) -> tuple[Ask, ...]:
    return tuple(Ask("search", {"query": query}) for query in queries)


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        id="search/found",
        about="A search with hits ends the run; the customer reads the hits, no model call rewords them.",
        turns=(
            Turn(
                user="Do you have a blue mug?",
                script=((SAMPLE,),),
                narration="Yes, we have a blue mug for 19.99.",
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("search/found",),
                stopped_by="completed",
                final=MUG,
            ),
        ),
    ),
    Scenario(
        id="search/reworded",
        about="Every shard stumbles over the query; the model words it anew and the search passes.",
        forced={"search": (_unread(),)},
        turns=(
            Turn(
                user="Find me a teapot for less than 40.",
                script=(_ask("teapot AND (price:<40"), _ask("teapot")),
                narration="I found a glass teapot for 34.00.",
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("search/query", "search/found"),
                stopped_by="completed",
                final=TEAPOT,
            ),
        ),
    ),
    Scenario(
        id="search/shard-lost",
        about="No hits, but one shard did not answer: no dead end, and the same query finds it a turn later.",
        forced={"search": (_partial(timed_out=False, failed=1),)},
        turns=(
            Turn(
                user="Is there a teapot?",
                script=(_ask("teapot"), _ask("teapot")),
                narration="Yes, a glass teapot.",
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("search/parts-missing", "search/found"),
                stopped_by="completed",
                final=TEAPOT,
            ),
        ),
    ),
    Scenario(
        id="search/cut-off",
        about="A 200 that ran out of time proves nothing; a narrower query passes.",
        forced={"search": (_partial(timed_out=True, failed=0),)},
        turns=(
            Turn(
                user="Something for loose tea, maybe a teapot?",
                script=(_ask("something for loose tea or maybe a teapot"), _ask("teapot")),
                narration="A glass teapot would do.",
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("search/cut-off", "search/found"),
                stopped_by="completed",
                final=TEAPOT,
            ),
        ),
    ),
    Scenario(
        id="search/dead-end",
        about="A whole search without hits is a dead end: the customer is told, and nobody tries synonyms.",
        turns=(
            Turn(
                user="Do you sell submarines?",
                script=(_ask("submarine"),),
                narration="I am afraid we sell no submarines.",
                path=("agent", "tools", "finalize"),
                reasons=("fatal",),
                rules=("search/nothing-found",),
                stopped_by="fatal",
                final=NOTHING,
            ),
        ),
    ),
    Scenario(
        id="search/no-index",
        about="The index is configuration: a missing one ends the run, whatever the model would ask next.",
        vendors={"search": {"index": "catalogue"}},
        turns=(
            Turn(
                user="Do you have a blue mug?",
                script=((SAMPLE,),),
                narration="The search failed, sorry.",
                path=("agent", "tools", "finalize"),
                reasons=("fatal",),
                rules=("search/no-index",),
                stopped_by="fatal",
                final=GONE,
            ),
        ),
    ),
    Scenario(
        id="search/not-permitted",
        about="The key is valid and its roles say no: a rule refused, and no wording changes it.",
        forced={"search": (_refused(403, "security_exception"),)},
        turns=(
            Turn(
                user="Do you have a blue mug?",
                script=((SAMPLE,),),
                narration="I am not allowed to search, sorry.",
                path=("agent", "tools", "finalize"),
                reasons=("policy_block",),
                rules=("search/not-permitted",),
                stopped_by="policy_block",
                final=NOT_PERMITTED,
            ),
        ),
    ),
    Scenario(
        id="search/lost-answer",
        about="One answer gets lost: the tool sends the read once more, and the model never knows.",
        forced={"search": (Forced(kind="ReadTimeout"),)},
        turns=(
            Turn(
                user="Do you have a blue mug?",
                script=((SAMPLE,),),
                narration="Yes, we have a blue mug for 19.99.",
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("search/found",),
                stopped_by="completed",
                final=MUG,
            ),
        ),
    ),
    Scenario(
        id="search/timeout",
        about="Two answers in a row get lost; the model asks again a turn later.",
        forced={"search": (_LOST,)},
        turns=(
            Turn(
                user="Is there a teapot?",
                script=(_ask("teapot"), _ask("teapot")),
                narration="Yes, a glass teapot.",
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "completed"),
                rules=("infra/timeout", "search/found"),
                stopped_by="completed",
                final=TEAPOT,
            ),
        ),
    ),
    Scenario(
        id="search/gateway-page",
        about="A gateway's HTML page comes in place of an answer: no markup reaches anybody.",
        forced={"search": (_PAGE,)},
        turns=(
            Turn(
                user="Do you have a blue mug?",
                script=((SAMPLE,), LATER),
                narration=LATER,
                path=("agent", "tools", "agent"),
                reasons=("transient",),
                rules=("infra/gateway",),
                stopped_by=None,
                final=LATER,
            ),
        ),
    ),
    Scenario(
        id="search/rate-limited",
        about="Three times the service asks for seven seconds: the budget ends the run with that text.",
        forced={
            "search": (_refused(429, "es_rejected_execution_exception", headers={"retry-after": "7"}),) * 3
        },
        turns=(
            Turn(
                user="Do you have a blue mug?",
                script=((SAMPLE,), (SAMPLE,), (SAMPLE,)),
                narration="The shop's search is busy, sorry.",
                path=("agent", "tools", "agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient", "transient", "transient"),
                rules=("search/busy", "search/busy", "search/busy"),
                stopped_by="attempts_exhausted",
                final=BUSY,
            ),
        ),
    ),
    Scenario(
        id="search/two-at-once",
        about="Two searches in one turn, one a dead end: both texts reach the customer, in call order.",
        turns=(
            Turn(
                user="Do you have a teapot and a submarine?",
                script=(_ask("teapot", "submarine"),),
                narration="A teapot yes, submarines no.",
                path=("agent", "tools", "finalize"),
                reasons=("completed", "fatal"),
                rules=("search/found", "search/nothing-found"),
                stopped_by="fatal",
                final=f"{TEAPOT}\n\n{NOTHING}",
            ),
        ),
    ),
    Scenario(
        id="search/batch-goes-on",
        about="Of three searches in one turn one could end the run; the others need words, so it goes on.",
        turns=(
            Turn(
                user="Find a teapot, a blue mug, and surprise me.",
                script=(_ask("teapot", " ", "mug " * 300), _ask("blue mug")),
                narration="A teapot and a blue mug: shall I add a surprise?",
                path=("agent", "tools", "agent", "tools", "finalize"),
                reasons=("completed", "transient", "transient", "completed"),
                rules=("search/found", "search/empty-query", "search/long-query", "search/found"),
                stopped_by="completed",
                final=MUG,
            ),
        ),
    ),
    Scenario(
        id="search/batch-refused",
        about="A rule refuses one search: the run stops although the other still lacks words.",
        forced={"search": (_refused(403, "security_exception"),)},
        turns=(
            Turn(
                user="Find a teapot, and surprise me.",
                script=(_ask("", "teapot"),),
                narration="I cannot search there, sorry.",
                path=("agent", "tools", "finalize"),
                reasons=("transient", "policy_block"),
                rules=("search/empty-query", "search/not-permitted"),
                stopped_by="policy_block",
                final=(
                    "There is nothing to search for yet. Some words to look for would help."
                    f"\n\n{NOT_PERMITTED}"
                ),
            ),
        ),
    ),
    Scenario(
        id="search/second-turn",
        about="A dead end ends its own turn only: the next questions are answered afresh.",
        turns=(
            Turn(
                user="Do you sell submarines?",
                script=(_ask("submarine"),),
                narration="I am afraid we sell no submarines.",
                path=("agent", "tools", "finalize"),
                reasons=("fatal",),
                rules=("search/nothing-found",),
                stopped_by="fatal",
                final=NOTHING,
            ),
            Turn(
                user="What a pity. What do you sell, then?",
                script=("Mugs, shirts, books, tea and coffee. What would you like to see?",),
                narration="Mugs, shirts, books, tea and coffee.",
                path=("agent",),
                final="Mugs, shirts, books, tea and coffee. What would you like to see?",
            ),
            Turn(
                user="A teapot, please.",
                script=(_ask("teapot"),),
                narration="Here is a glass teapot.",
                path=("agent", "tools", "finalize"),
                reasons=("completed",),
                rules=("search/found",),
                stopped_by="completed",
                final=TEAPOT,
            ),
        ),
    ),
)
"""The conversations, each with its expected course."""
