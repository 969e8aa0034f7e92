"""What went wrong for others, each kind of fault end to end: real tools over fakes, on both runtimes.

Every run is held to the oracles that hold anywhere: a valid history (O3), one of the four reasons (O5), the
tools' own text on a stop (O6), both runtimes alike (O7), a decision that no order and no checkpoint changes
(O8). Money (O1), model calls (O2) and secrets (O4) are asserted where a case is about them.
"""

import asyncio
import json
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END
from langgraph.types import Command, interrupt

from domains import DOMAINS
from domains.infrastructure import BARE
from domains.journeys import FILED, FOUND
from domains.journeys import PAID as RECEIPT
from domains.mapping import Call, Flow
from domains.runner import RUNTIMES, vendor
from domains.runner import Runtime as RuntimeName
from domains.tool import as_tool
from mocks.elasticsearch import ElasticsearchMock, rejected
from mocks.github import GitHubMock
from mocks.groq import GroqMock, rate_limited, request_too_large, server_error, tool_use_failed
from mocks.model import ScriptedModel
from mocks.stripe import StripeMock
from mocks.vendor import Fault, Vendor, answer, html_502, timeout
from orchestration import Outcome, Reason, StopPolicy, decide
from orchestration.asking import ASK_AGAIN, CANNOT_GO_ON, NO_ANSWER, NOT_FINISHED
from orchestration.guards import Guard, spend_cap
from orchestration.outcomes import NOT_CARRIED_OUT
from orchestration.relay import policy_of
from orchestration.streams import user_text, without_artifacts
from tests.runtimes import NO_LANGCHAIN, assert_valid, call, garbled, rule_of, turn, walk

pytestmark = pytest.mark.slow  # CI runs it: `uv run pytest -m slow`

SECRET = "sk_live_51Hunter2"  # noqa: S105 - planted, to be looked for
SAID = "In my own words."
CREATE = "POST /v1/payment_intents"
CONFIRM = "POST /v1/payment_intents/*/confirm"
ISSUES = "POST /repos/*/issues"

VENDORS = {"checkout": "stripe", "search": "elastic", "ticketing": "github"}
"""Domain -> its vendor's place in the shop."""

DOMAIN_OF = {DOMAINS[name].sample.tool: name for name in VENDORS}
"""Tool -> its domain."""

Args = dict[str, Any]


@dataclass
class Shop:
    """The three vendors, as a customer's agent meets them."""

    stripe: StripeMock = field(default_factory=StripeMock)
    elastic: ElasticsearchMock = field(default_factory=ElasticsearchMock)
    github: GitHubMock = field(default_factory=GitHubMock)

    @property
    def vendors(self) -> dict[str, Vendor]:
        """The vendors by domain."""
        return {domain: getattr(self, name) for domain, name in VENDORS.items()}

    @property
    def tools(self) -> list[BaseTool]:
        """Every domain's tools."""
        return self.tools_of(self.vendors)

    def tools_of(self, domains: Iterable[str]) -> list[BaseTool]:
        """Return these domains' tools."""
        return [
            each
            for name, fake in self.vendors.items()
            if name in domains
            for each in DOMAINS[name].tools(client=fake.client(), async_client=fake.async_client())
        ]

    @property
    def paid(self) -> list[int]:
        """The charges booked (O1)."""
        return [charge.amount for charge in self.stripe.charges]


@dataclass
class Ran:
    """One run on one runtime."""

    runtime: str
    shop: Shop
    model: Any
    app: Any
    path: list[str]
    messages: list[AnyMessage]

    @property
    def said(self) -> Any:
        """What the user reads."""
        return self.messages[-1].content

    @property
    def answers(self) -> list[ToolMessage]:
        """The tools' answers."""
        return [message for message in self.messages if isinstance(message, ToolMessage)]

    @property
    def reasons(self) -> list[str | None]:
        """Every call's reason; None where nothing vouches for the answer."""
        return [(answer.artifact or {}).get("reason") for answer in self.answers]

    @property
    def rule(self) -> str | None:
        """The rule that stopped the run."""
        return rule_of(self.messages[-1])


def everywhere(
    script: Sequence[Any],
    *,
    shop: Callable[[], Shop] = Shop,
    more: Callable[[Shop], Sequence[Any]] = lambda _: (),
    groq: bool = False,
    given: Any = "Please do it.",
    recursion_limit: int = 100,
    guards: Sequence[Guard] = (),
    checkpointed: bool = False,
    **configurable: Any,
) -> Iterator[Ran]:
    """Run on both runtimes, one sync and one async, and yield each run when it has passed the oracles.

    Args:
        script: What the model says; after it, ``SAID``.
        shop: Makes the vendors.
        more: Makes further tools.
        groq: Whether the model is the real client over a fake of Groq's wire.
        given: What the user says.
        recursion_limit: The caller's own.
        guards: Rules of our own.
        checkpointed: Whether the run is a thread's.
        configurable: The run's settings.
    """
    shown = []
    called = {DOMAIN_OF[name] for name in _called(script) if name in DOMAIN_OF}  # the others cost time
    for name, way in zip(RUNTIMES, ("invoke", "ainvoke"), strict=False):
        made = shop()
        wire: Any = (GroqMock if groq else ScriptedModel)(script, narration=SAID)
        app = built(
            name,
            wire.model() if groq else wire,
            [*made.tools_of(called), *more(made)],
            guards=guards,
            checkpointer=InMemorySaver() if checkpointed else None,
        )
        config = {"recursion_limit": recursion_limit, "configurable": {"thread_id": "t", **configurable}}
        ran = Ran(name, made, wire, app, *walk(way, app, given, **config))
        wire.check()
        assert [] == [where for fake in made.vendors.values() for where in fake.unmatched]
        assert_oracles(ran.messages, **configurable)
        shown.append((ran.path, wire.calls, [_shown(message) for message in ran.messages]))
        assert shown[0] == shown[-1]  # O7
        yield ran


def _called(script: Sequence[Any]) -> set[str]:
    steps = [step for step in script if isinstance(step, AIMessage)]
    return {each["name"] or "" for step in steps for each in (*step.tool_calls, *step.invalid_tool_calls)}


def built(name: RuntimeName, model: Any, tools: Sequence[Any], **more: Any) -> Any:
    """Return an agent on a runtime."""
    if name == "graph":
        from orchestration.graph import build_graph

        return build_graph(model, tools, **more)
    from orchestration.agent import build_agent

    return build_agent(model, tools, **more)


def _shown(message: AnyMessage) -> tuple[Any, ...]:
    """Return what must be equal on both runtimes."""
    calls = [(each["name"], each["args"]) for each in getattr(message, "tool_calls", ())]
    artifact = getattr(message, "artifact", None)
    return message.type, message.content, calls, artifact, rule_of(message)


def assert_oracles(messages: Sequence[AnyMessage], **configurable: Any) -> None:
    """Assert what holds of every run with these settings."""
    assert_valid(messages)  # O3
    answers = [message for message in messages if isinstance(message, ToolMessage)]
    artifacts = [answer.artifact for answer in answers if isinstance(answer.artifact, dict)]
    assert {artifact["reason"] for artifact in artifacts if "reason" in artifact} <= {*Reason}  # O5
    history = list(messages[:-1] if rule_of(messages[-1]) else messages)
    policy = policy_of({"configurable": configurable}, StopPolicy())
    decision = decide(history, policy)
    if rule_of(messages[-1]) is not None and messages[-1].response_metadata["route"] == "finalize":
        assert (decision.rule, decision.text) == (rule_of(messages[-1]), messages[-1].content)  # O6
    last = max((at for at, message in enumerate(history) if message.type == "ai"), default=0)
    assert decision == decide([*history[: last + 1], *reversed(history[last + 1 :])], policy)  # O8
    assert decision == decide(json.loads(json.dumps([message.model_dump() for message in history])), policy)


def pay(call_id: str | None = "c0", **args: Any) -> Any:
    """Return a call of the checkout."""
    return call("checkout", call_id, **{"cart_id": "cart_7", "amount": 1999, **args})


def look(call_id: str = "s0", query: str = "blue mug", **args: Any) -> Any:
    """Return a call of the search."""
    return call("search", call_id, query=query, **args)


def ticket(call_id: str = "t0", title: str = "Mug broken", **args: Any) -> Any:
    """Return a call of the ticket desk."""
    return call("create_ticket", call_id, title=title, **args)


def with_faults(**faults: Fault) -> Callable[[], Shop]:
    """Return what makes a shop whose vendors answer with these faults first."""

    def make() -> Shop:
        shop = Shop()
        for name, fault in faults.items():
            getattr(shop, name).script(fault)
        return shop

    return make


def with_card(*declines: str) -> Callable[[], Shop]:
    """Return what makes a shop in which the usual card is declined so first."""
    return lambda: Shop(stripe=StripeMock(declines={"pm_card_visa": declines}))


def raising(error: BaseException, name: str = "lookup") -> StructuredTool:
    """Return a tool that raises."""

    def run() -> str:
        """Look something up."""
        raise error

    return StructuredTool.from_function(run, name=name)


# B02: a sibling tool raises and the receipt is forgotten


@pytest.mark.parametrize("error", [KeyError("cart"), ToolException("no"), ExceptionGroup("all", [OSError()])])
@pytest.mark.parametrize("order", [0, 1])
def test_b02_a_raising_sibling(order: int, error: Exception) -> None:
    """The receipt beside a tool with a bug is read, is in the next turn's prompt, and is paid once."""
    calls = [pay(), call("lookup", "c1")][:: -1 if order else 1]

    for ran in everywhere([turn(*calls)], more=lambda _: [raising(error)], checkpointed=True):
        texts = [RECEIPT, f"<p>{NOT_CARRIED_OUT}</p>"][:: -1 if order else 1]
        assert ("\n\n".join(texts), "fatal") == (ran.said, ran.rule)
        messages = ran.app.invoke({"messages": [("user", "And now?")]}, {"configurable": {"thread_id": "t"}})[
            "messages"
        ]
        assert_valid(messages)
        assert RECEIPT in [message.content for message in ran.model.requests[-1]]
        assert [1999] == ran.shop.paid


# B04: an approval runs the charge again


@pytest.mark.parametrize("resumes", [["yes", "yes"], ["yes", "no"], [{"grant": 1}, 0]])
def test_b04_charge_then_ask(resumes: list[Any]) -> None:
    """However often a pause starts a call over, with whatever answer, the cart is charged once."""
    for name in RUNTIMES:
        shop = Shop()
        checkout = shop.tools[0]

        @tool(response_format="content_and_artifact")
        def pay_and_ask(cart_id: str) -> tuple[str, Any]:
            """Pay, then ask two people."""
            paid = checkout.invoke({**pay(), "args": {"cart_id": cart_id, "amount": 1999}})  # noqa: B023
            said = [interrupt("ship?"), interrupt("sure?")]
            return Outcome(f"{paid.content} {said}", Reason.COMPLETED).as_tool_result()

        script = [turn(pay("c0"), call("pay_and_ask", "c1", cart_id="cart_7"))]
        app = built(name, ScriptedModel(script), [*shop.tools, pay_and_ask], checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "t"}}
        app.invoke({"messages": [("user", "Pay.")]}, config)
        for value in resumes:
            assert [1999] == shop.paid
            messages = app.invoke(Command(resume=value), config)["messages"]
        assert_oracles(messages)
        assert [1999] == shop.paid
        assert messages[-1].content.startswith(RECEIPT)


def test_b04_a_sibling_asks() -> None:
    """A charge beside an approval stands when the approval comes, even if it is given twice."""
    for name in RUNTIMES:
        shop = Shop()

        @tool(response_format="content_and_artifact")
        def approve() -> tuple[str, Any]:
            """Ask a person."""
            return Outcome(f"{interrupt('sure?')}", Reason.COMPLETED).as_tool_result()

        script = [turn(pay(), call("approve", "c1"))]
        app = built(name, ScriptedModel(script), [*shop.tools, approve], checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "t"}}
        app.invoke({"messages": [("user", "Pay.")]}, config)
        paused = app.get_state(config)
        first = app.invoke(Command(resume="Yes."), config)["messages"]
        again = app.invoke(Command(resume="Yes, really."), paused.config)["messages"]
        for messages in (first, again):
            assert_oracles(messages)
            assert messages[-1].content.startswith(f"{RECEIPT}\n\n<p>Yes")
        assert [1999] == shop.paid


# B06: the key is computed from what the model wrote


def test_b06_reworded() -> None:
    """Another note, call id, spelling or day is the same payment; another amount is refused under any key."""
    keys = set()
    script = [
        turn(pay("a", note="Blue mug")),
        turn(pay("b", note="blue mug please", cart_id=" cart_7 ", currency="USD")),
    ]
    for ran in everywhere(script, shop=with_card("processing_error")):
        assert (["transient", "completed"], [1999]) == (ran.reasons, ran.shop.paid)
        ran.shop.stripe.advance(hours=25)
        ran.shop.stripe.key = "sk_another"
        for late in everywhere([turn(pay("z"))], shop=lambda ran=ran: ran.shop):  # type: ignore[misc]
            assert ("completed", [1999]) == (late.rule, late.shop.paid)
            keys |= {answer.artifact["key"] for answer in (*ran.answers, *late.answers)}
        for changed in everywhere([turn(pay(amount=2999))], shop=lambda ran=ran: ran.shop):  # type: ignore[misc]
            assert ("fatal", [1999]) == (changed.rule, changed.shop.paid)
            keys |= {answer.artifact["key"] for answer in changed.answers}
    assert 1 == len(keys)


# B08: a failed "final" tool ends the conversation


@pytest.mark.parametrize(
    "wrong", [{"amount": "much"}, {"amount": -1}, {"cart_id": " "}, {"currency": "dollar"}]
)
def test_b08_arguments_that_can_be_fixed(wrong: Args) -> None:
    """Bad arguments go back to the model, whoever finds them bad; then the receipt is the answer."""
    for ran in everywhere([turn(pay(**wrong)), turn(pay("c1"))]):
        assert (2, RECEIPT, [1999]) == (ran.model.calls, ran.said, ran.shop.paid)
        assert ["transient", "completed"] == ran.reasons


# B10: a denied call runs anyway


def test_b10_a_denied_call_never_runs() -> None:
    """A call over the cap is sent to nobody, and answered once, by the guard."""
    for ran in everywhere([turn(pay(), look())], guards=[spend_cap(1000)]):
        assert ([], "policy_block") == (ran.shop.stripe.requests, ran.rule)
        assert ["guard/spend-cap", "search/found"] == [answer.artifact["rule"] for answer in ran.answers]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_b10_a_foreign_jump_to_the_tools(way: str) -> None:
    """Nor does it run when somebody else's hook jumps back to the tools."""
    middleware = pytest.importorskip("langchain.agents.middleware", reason=NO_LANGCHAIN)
    jumps: list[int] = []

    @middleware.hook_config(can_jump_to=["tools"])  # type: ignore[untyped-decorator]
    def jump(self: Any, state: Any, runtime: Any) -> Any:
        jumps.append(1)
        return {"jump_to": "tools"} if len(jumps) < 3 else None

    hook = type("Jumps", (middleware.AgentMiddleware,), {"after_model": jump})()
    shop = Shop()
    model = ScriptedModel([turn(pay(amount=900_00))])
    app = built("agent", model, shop.tools, guards=[spend_cap(500_00)], middleware=[hook])

    _, messages = walk(way, app)

    assert_oracles(messages)
    assert ([], "policy_block", 1) == (shop.stripe.requests, rule_of(messages[-1]), model.calls)


# B12: failures labelled success


GOOD_NEWS = {
    "checkout": {"id": "pi_9", "object": "payment_intent", "status": "succeeded", "amount": 1999, "ok": True},
    "search": {
        "hits": {"total": {"value": 1}, "hits": [{"_id": "x", "_source": {"title": "T"}}]},
        "ok": True,
    },
    "ticketing": {"number": 9, "id": "T-9", "state": "open", "ok": True},
}


@pytest.mark.parametrize("status", [500, 404, 302, 402])
@pytest.mark.parametrize("domain", VENDORS)
def test_b12_a_failure_that_looks_like_a_result(domain: str, status: int) -> None:
    """The status decides before the body does: no failure is called done, whatever it holds."""
    ask = DOMAINS[domain].sample
    name = VENDORS[domain]

    def make() -> Shop:
        return with_faults(**{name: answer(status, GOOD_NEWS[domain], times=9)})()

    for ran in everywhere([turn(call(ask.tool, "c0", **ask.args))], shop=make):
        assert ["completed"] != ran.reasons
        [said] = ran.answers
        failed = said.artifact["reason"] in {"transient", "fatal"}
        assert ("error" if failed else "success") == said.status


def test_b12_a_result_that_says_it_is_an_error() -> None:
    """Cheerful words on a message that is marked as an error (MCP's isError) are shown to no user."""

    def book() -> ToolMessage:
        """Book a table."""
        claim = {"schema": 1, "stop": True, "reason": "completed"}
        return ToolMessage("Booked!", artifact=claim, status="error", tool_call_id="x")

    for ran in everywhere([turn(call("book"))], more=lambda _: [book]):
        assert (2, SAID, None) == (ran.model.calls, ran.said, ran.rule)
    for ran in everywhere(
        [turn(call("book"), pay("c1", payment_method="pm_card_radarBlock"))], more=lambda _: [book]
    ):
        assert (1, "policy_block") == (ran.model.calls, ran.rule)
        assert "Booked!" not in ran.said
        assert NOT_CARRIED_OUT in ran.said


# B13: only one of several results is inspected

THREE: dict[str, tuple[dict[str, str], dict[str, str | None]]] = {
    "one can still pass": (
        {"search": "completed", "checkout": "transient", "ticketing": "completed"},
        {"priority": None, "all": None, "any": "completed"},
    ),
    "one is blocked": (
        {"search": "completed", "checkout": "policy_block", "ticketing": "transient"},
        {"priority": "policy_block", "all": None, "any": "policy_block"},
    ),
    "one has failed": (
        {"search": "completed", "checkout": "fatal", "ticketing": "completed"},
        {"priority": "fatal", "all": "fatal", "any": "fatal"},
    ),
}


def forced(reasons: Mapping[str, str]) -> Callable[[], Shop]:
    """Return what makes a shop in which each domain's sample call ends so."""

    def make() -> Shop:
        fakes: dict[str, Any] = {
            domain: vendor(domain, *DOMAINS[domain].forced[Reason(reason)])
            for domain, reason in reasons.items()
        }
        return Shop(**{VENDORS[domain]: fake for domain, fake in fakes.items()})

    return make


@pytest.mark.parametrize("case", THREE)
def test_b13_every_result_counts(case: str) -> None:
    """Wherever a result stands in its turn, it counts, and its text is read in its place."""
    reasons, rules = THREE[case]
    asks = [call(DOMAINS[name].sample.tool, name, **DOMAINS[name].sample.args) for name in reasons]
    for at, order in enumerate(permutations(asks)):
        batch, rule = [*rules.items()][at % 3]
        for ran in everywhere([turn(*order)], shop=forced(reasons), stop_batch=batch):
            assert rule == ran.rule
            places = [ran.said.find(str(answer.content)[:20].removeprefix("<p>")) for answer in ran.answers]
            assert (places == sorted(places) and -1 not in places) or rule is None


# B15: an API key in an exception


REPLIES: dict[str, Fault] = {
    "401 that repeats the key": answer(401, {"error": {"message": SECRET}, "message": SECRET}, times=9),
    "429 that repeats the key": answer(429, {"error": f"bad key {SECRET}", "message": SECRET}, times=9),
    "500 that repeats the key": answer(500, f"Trace: key={SECRET}", times=9),
    "a header that repeats the key": answer(503, headers={"x-key": SECRET}, times=9),
    "ReadTimeout": Fault(kind="ReadTimeout", times=9),
    "TooManyRedirects": Fault(kind="TooManyRedirects", times=9),
    "DecodingError": Fault(kind="DecodingError", times=9),
}


@pytest.mark.parametrize("reply", REPLIES)
def test_b15_no_key_gets_out(reply: str, caplog: pytest.LogCaptureFixture) -> None:
    """A key that is sent, or that comes back, is in no message, artifact, event or log (O4)."""
    caplog.set_level(logging.DEBUG)

    def make() -> Shop:
        fault = REPLIES[reply]
        return Shop(
            StripeMock(key=SECRET, faults=[fault]),
            ElasticsearchMock(key=SECRET, faults=[fault]),
            GitHubMock(key=SECRET, faults=[fault]),
        )

    for ran in everywhere([turn(pay(), look(), ticket())], shop=make):
        assert "completed" not in ran.reasons
        assert SECRET not in repr(ran.messages)
    assert SECRET not in caplog.text
    assert SECRET not in repr([vars(record) for record in caplog.records])
    app = built("graph", ScriptedModel([turn(pay(), look(), ticket())], narration=SAID), make().tools)
    assert SECRET not in repr(_events(app))


def _events(app: Any) -> list[Any]:
    async def every() -> list[Any]:
        given = {"messages": [("user", "Please do it.")]}
        return [event async for event in app.astream_events(given, version="v2")]

    return asyncio.run(every())


@pytest.mark.parametrize("where", ["query", "user in the URL", "header"])
def test_b15_a_key_of_somebody_elses_tool(where: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of an exception that a tool lets out nothing is shown: neither the URL nor what stands behind it."""
    caplog.set_level(logging.DEBUG, "orchestration")

    def fetch() -> str:
        """Fetch."""
        address = (
            f"https://me:{SECRET}@vendor.example/x"
            if where == "user in the URL"
            else "https://vendor.example/x"
        )
        headers = {"authorization": f"Bearer {SECRET}"} if where == "header" else {}
        params = {"api_key": SECRET} if where == "query" else {}
        request = httpx.Request("GET", address, params=params, headers=headers)
        cause = httpx.ReadTimeout(f"timed out: {request.url} {headers}", request=request)
        raise RuntimeError(f"fetching {request.url} {headers}") from cause

    for ran in everywhere([turn(call("fetch"))], more=lambda _: [fetch]):
        assert (NOT_CARRIED_OUT, "fatal") == (ran.said, ran.rule)
        assert SECRET not in repr(ran.messages)
    assert "tool fetch raised RuntimeError" in caplog.text
    assert SECRET not in repr([(record.getMessage(), record.exc_info) for record in caplog.records])


def test_b15_the_providers_own_error() -> None:
    """What is raised when a run has nothing to tell holds no key of a tool's vendor."""
    for name in RUNTIMES:
        shop = Shop(elastic=ElasticsearchMock(key=SECRET, faults=[Fault(kind="ConnectError", times=9)]))
        wire = GroqMock([turn(look()), server_error()])
        with pytest.raises(Exception, match="Error code: 500") as raised:
            built(name, wire.model(), shop.tools).invoke({"messages": [("user", "Look.")]})
        assert SECRET not in "".join(traceback.format_exception(raised.value))


# B17: hard declines tried again

DECLINES: dict[str, tuple[str, int]] = {
    # decline code -> reason, attempts at the bank if the model insists on the same call
    "do_not_honor": ("fatal", 1),
    "stolen_card": ("fatal", 1),
    "lost_card": ("fatal", 1),
    "expired_card": ("fatal", 1),
    "insufficient_funds": ("fatal", 1),
    "transaction_not_allowed": ("fatal", 1),
    "fraudulent": ("policy_block", 1),
    "a_code_of_tomorrow": ("fatal", 1),
    "processing_error": ("transient", 3),
    "try_again_later": ("transient", 3),
    "authentication_required": ("transient", 3),
    "incorrect_cvc": ("transient", 3),
}


@pytest.mark.parametrize("code", DECLINES)
def test_b17_declines(code: str) -> None:
    """A firm decline is asked once, in words without the code; a passing one as often as the budget lets."""
    reason, attempts = DECLINES[code]
    on = {} if reason == "transient" else {"last_step": False}
    insists = [turn(pay(f"c{at}", note=f"try {at}", **on)) for at in range(9)]

    for ran in everywhere(insists, shop=with_card(*[code] * 9), stop_max_turns=4):
        assert [reason] * len(ran.reasons) == ran.reasons
        assert (attempts, []) == (len(ran.shop.stripe.attempts), ran.shop.paid)
        for said in ran.answers:
            assert not {code, "stolen", "fraud", "fraudulent"} & {*str(said.content).lower().split()}


def test_b17_a_decline_without_a_code() -> None:
    """A card error that names no decline is firm as well."""
    body = {"error": {"type": "card_error", "message": "Your card was declined."}}
    for ran in everywhere([turn(pay())], shop=with_faults(stripe=answer(402, body, at=CONFIRM))):
        assert ("fatal", 1, []) == (ran.rule, ran.model.calls, ran.shop.paid)


# B19: one key, other values


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"type": "idempotency_error"}),
        (422, {"type": "invalid_request_error", "code": "idempotency_conflict"}),
        (409, {"type": "invalid_request_error", "code": "payload_mismatch"}),
    ],
)
def test_b19_a_key_that_met_other_values(status: int, error: Args, caplog: pytest.LogCaptureFixture) -> None:
    """It is our bug: loud in the log, the end of the run, and no second key is made."""
    caplog.set_level(logging.ERROR)
    make = with_faults(stripe=answer(status, {"error": error}, at=CREATE, times=9))

    for ran in everywhere([turn(pay(last_step=False)), turn(pay("c1", note="again"))], shop=make):
        assert (["fatal", "fatal"], []) == (ran.reasons, ran.shop.paid)
        assert 1 == [(row.method, row.path) for row in ran.shop.stripe.requests].count(
            ("POST", "/v1/payment_intents")
        )
    assert len(RUNTIMES) == caplog.text.count("an idempotency key met other values")


def test_b19_a_key_in_use_is_another_thing() -> None:
    """A 409 because the same request is still at work can pass: the cart is paid in the end, once."""
    error = {"type": "invalid_request_error", "code": "idempotency_key_in_use"}
    make = with_faults(stripe=answer(409, {"error": error}, at=CREATE))
    for ran in everywhere([turn(pay()), turn(pay("c1"))], shop=make):
        assert (["transient", "completed"], [1999]) == (ran.reasons, ran.shop.paid)


# B21: a spend counter and parallel tools


def test_b21_a_turn_over_the_cap() -> None:
    """Over the cap together, neither is sent."""
    calls = [pay("c0", cart_id="a", amount=600), pay("c1", cart_id="b", amount=600)]
    for ran in everywhere([turn(*calls)], guards=[spend_cap(1000)]):
        assert ([], ["policy_block"] * 2) == (ran.shop.stripe.requests, ran.reasons)


def test_b21_a_replay_spends_nothing() -> None:
    """A step that is replayed is no further spending: it is neither refused nor charged again."""
    script = [turn(pay("c0", amount=600))]
    for ran in everywhere(script, guards=[spend_cap(1000)], checkpointed=True):
        config = {"configurable": {"thread_id": "t"}}
        [place] = [state for state in ran.app.get_state_history(config) if state.next == ("tools",)]
        messages = ran.app.invoke(None, place.config)["messages"]
        assert_oracles(messages)
        assert ("completed", [600]) == (rule_of(messages[-1]), ran.shop.paid)


# B23: 200 with an error in it

ENVELOPES: dict[str, tuple[Any, str]] = {
    "rate limited": ({"ok": False, "error": "ratelimited"}, "transient"),
    "bad credential": ({"ok": False, "error": "invalid_auth"}, "fatal"),
    "data and errors": ({"data": {"a": 1}, "errors": [{"message": "no"}]}, "transient"),
    "no envelope": ({"message": "posted", "ts": "1.2"}, "transient"),
    "a word for false": ({"ok": "false"}, "transient"),
    "throttled": ({"data": None, "errors": [{"extensions": {"code": "THROTTLED"}}]}, "transient"),
    "ok": ({"ok": True}, "transient"),
}


@pytest.mark.parametrize("case", ENVELOPES)
def test_b23_an_envelope_of_a_vendor_that_nobody_mapped(case: str) -> None:
    """A 200 whose body refuses is refused; where nobody said what proves a success, none is seen."""
    body, reason = ENVELOPES[case]

    def post_message() -> Flow:
        """Post a message."""
        reply = yield Call("POST", "/chat.postMessage", json={}, write=True)
        return BARE.classify(reply)

    def chat(_: Shop) -> list[BaseTool]:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
        return [
            as_tool(post_message, client=httpx.Client(base_url="https://chat.example", transport=transport))
        ]

    for ran in everywhere([turn(call("post_message"))], more=chat):
        assert ([reason], 2 if reason == "transient" else 1) == (ran.reasons, ran.model.calls)


# B24: 403 that is a rate limit, and 403 that is not

DOC = {"documentation_url": "https://docs.github.com/rest"}
FORBIDDEN: dict[str, tuple[Fault, str]] = {
    "retry-after": (
        answer(403, {"message": "no", **DOC}, at=ISSUES, headers={"Retry-After": "60"}),
        "transient",
    ),
    "odd case": (
        answer(403, {"message": "no", **DOC}, at=ISSUES, headers={"rEtRy-AfTeR": "60"}),
        "transient",
    ),
    "none left": (
        answer(403, {"message": "no", **DOC}, at=ISSUES, headers={"X-RateLimit-Remaining": "0"}),
        "transient",
    ),
    "none left, and a space": (
        answer(403, {"message": "no", **DOC}, at=ISSUES, headers={"x-ratelimit-remaining": "0 "}),
        "transient",
    ),
    "secondary": (
        answer(403, {"message": "You have exceeded a secondary rate limit.", **DOC}, at=ISSUES),
        "transient",
    ),
    "permission": (
        answer(403, {"message": "Resource not accessible by integration", **DOC}, at=ISSUES),
        "policy_block",
    ),
    "HTML": (answer(403, "<html><body>Access denied</body></html>", at=ISSUES), "policy_block"),
    "429 without a header": (answer(429, {"message": "slow", **DOC}, at=ISSUES), "transient"),
    "404": (answer(404, {"message": "Not Found", **DOC}, at=ISSUES), "fatal"),
}


@pytest.mark.parametrize("case", FORBIDDEN)
def test_b24_limits_and_permissions(case: str) -> None:
    """A limit goes back to the model, whatever it is dressed as; a missing permission or repository stops."""
    fault, reason = FORBIDDEN[case]
    for ran in everywhere([turn(ticket())], shop=with_faults(github=fault)):
        assert ([reason], 2 if reason == "transient" else 1) == (ran.reasons, ran.model.calls)
        assert [] == ran.shop.github.issues()
        assert "<" not in ran.said


# B26: an HTML page where JSON was due

PAGES: dict[str, tuple[Fault, str]] = {
    "502 of nginx": (html_502(), "transient"),
    "503 without a body": (answer(503), "transient"),
    "504": (answer(504, "<html><h1>Gateway Time-out</h1></html>"), "transient"),
    "a bot wall's 403": (answer(403, "<!DOCTYPE html><title>Just a moment...</title>"), "policy_block"),
    "a login page's 200": (answer(200, "<html><form>Log in</form></html>"), "transient"),
    "200 cut short": (Fault(kind="truncated"), "transient"),
}


@pytest.mark.parametrize("case", PAGES)
@pytest.mark.parametrize("domain", VENDORS)
def test_b26_pages(domain: str, case: str) -> None:
    """The status of a page decides, its markup is read by nobody, and no page is a success."""
    fault, reason = PAGES[case]
    ask = DOMAINS[domain].sample
    name = VENDORS[domain]
    make = with_faults(**{name: Fault(**{**_fields(fault), "times": 9})})

    for ran in everywhere([turn(call(ask.tool, "c0", **ask.args))], shop=make):
        assert [reason] == ran.reasons
        assert not {"<", "nginx", "moment"} & {
            *str(ran.answers[0].content),
            *str(ran.answers[0].content).split(),
        }
        assert [] == ran.shop.paid


def _fields(fault: Fault) -> Args:
    return {name: getattr(fault, name) for name in fault.__slots__}


# B28: two tickets from one request


@pytest.mark.parametrize("wording", ["Mug broken", "  mug   BROKEN "])
def test_b28_two_at_once(wording: str) -> None:
    """Two equal wishes of one turn, or of two, are one ticket."""
    both = [ticket("t0"), ticket("t1", wording, body="in other words")]
    for script in (
        [turn(*both)],
        [turn({**both[0], "args": {**both[0]["args"], "last_step": False}}), turn(both[1])],
    ):
        for ran in everywhere(script):
            assert (1, ["completed"] * 2) == (len(ran.shop.github.issues()), ran.reasons)
            assert 1 == len({answer.artifact["evidence"]["number"] for answer in ran.answers})


def test_b28_already_there() -> None:
    """A lost answer and a conflict end in the ticket that is there; a conflict with nobody opens none."""
    exists = answer(409, {"message": "Conflict", **DOC}, at=ISSUES, when="after")
    for fault in (timeout(ISSUES, when="after"), exists):
        for ran in everywhere([turn(ticket())], shop=with_faults(github=fault)):
            assert (1, "completed") == (len(ran.shop.github.issues()), ran.rule)
    for ran in everywhere(
        [turn(ticket())], shop=with_faults(github=answer(409, {"message": "Conflict", **DOC}, at=ISSUES))
    ):
        assert (0, ["transient"]) == (len(ran.shop.github.issues()), ran.reasons)


# B30: the model provider's own limits


@pytest.mark.parametrize("refusal", [request_too_large(), rate_limited(retry_after_s=3600), server_error()])
def test_b30_a_receipt_outlives_the_provider(refusal: httpx.Response) -> None:
    """A stop needs no second call; where one is refused, in polish or later on, the receipt stays."""
    for mode, calls, said in (("hard", 1, RECEIPT), ("polish", 2, RECEIPT)):
        for ran in everywhere([turn(pay()), refusal], groq=True, stop_mode=mode):
            assert (calls, said, [1999]) == (ran.model.calls, ran.said, ran.shop.paid)
    for script, mode in (([turn(pay())], "never"), ([turn(pay(last_step=False))], "hard")):
        for ran in everywhere([*script, refusal, refusal], groq=True, stop_mode=mode):
            assert ran.said.startswith(RECEIPT)
            assert "org_mock" not in ran.said


def test_b30_a_long_wait_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for an hour is asked once; nobody sleeps, and the user reads how long it is."""
    monkeypatch.setattr("time.sleep", _never)
    for ran in everywhere([turn(pay(last_step=False)), rate_limited(retry_after_s=3600)], groq=True):
        assert 2 == ran.model.calls
        assert f"{RECEIPT}\n\n<p>{CANNOT_GO_ON} The wait is about 3600 seconds.</p>" == ran.said
    hour = {"error": {"type": "es_rejected_execution_exception"}, "status": 429}
    make = with_faults(elastic=answer(429, hour, headers={"retry-after": "3600"}, times=9))
    for ran in everywhere([turn(look(f"s{at}")) for at in range(9)], shop=make):
        assert (3, "attempts_exhausted") == (ran.model.calls, ran.rule)
        assert ran.said.endswith("The wait is about 3600 seconds.")
        assert 3 == len(ran.shop.elastic.requests)


def _never(seconds: float) -> None:
    raise AssertionError(f"slept for {seconds}")


def test_b30_a_call_written_as_text() -> None:
    """Groq's tool_use_failed is asked once more, run by nobody and shown to nobody; twice is a text."""
    failed = tool_use_failed('<function=checkout>{"cart_id": "cart_9", "amount": 5}')
    for ran in everywhere([failed, turn(pay())], groq=True):
        assert (2, RECEIPT, [1999]) == (ran.model.calls, ran.said, ran.shop.paid)
        assert ASK_AGAIN == ran.model.requests[1]["messages"][-1]["content"]
    for ran in everywhere([failed, failed], groq=True):
        assert (2, NO_ANSWER, []) == (ran.model.calls, ran.said, ran.shop.paid)
        assert "function=" not in repr(ran.messages)


# B31: malformed arguments


def test_b31_arguments_that_are_none() -> None:
    """A call that cannot be read is answered and not run, its sibling is; the model then gets its turn."""
    bad = garbled("checkout", "g0", '{"cart_id": "cart_7", "amount": ')
    for ran in everywhere([turn(invalid_tool_calls=[bad]), turn(pay())], groq=True):
        assert (2, RECEIPT, [1999]) == (ran.model.calls, ran.said, ran.shop.paid)
        assert ["transient", "completed"] == ran.reasons
    for ran in everywhere([turn(pay(), invalid_tool_calls=[bad])], groq=True):
        assert ({"completed", "transient"}, SAID, [1999]) == ({*ran.reasons}, ran.said, ran.shop.paid)


@pytest.mark.parametrize("args", ["null", "[1]", "7", '"cart_7"', "true", "", "{}"])
def test_b31_arguments_that_are_no_object(args: str) -> None:
    """JSON that is no object runs nothing, and never ends a run without a word."""
    odd = garbled("checkout", "g0", args)
    for ran in everywhere([turn(invalid_tool_calls=[odd]), turn(pay())], groq=True):
        assert (2, RECEIPT, [1999]) == (ran.model.calls, ran.said, ran.shop.paid)
    for ran in everywhere([turn(invalid_tool_calls=[odd]), *[AIMessage("")] * 2], groq=True):
        assert (NO_ANSWER, []) == (ran.said, ran.shop.paid)


# B34: goto END ignored


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_b34_a_foreign_command(way: str) -> None:
    """Whatever Command somebody's hook makes of an answer, a receipt costs one model call and is relayed."""
    middleware = pytest.importorskip("langchain.agents.middleware", reason=NO_LANGCHAIN)

    def wrap(self: Any, request: Any, handler: Any) -> Any:
        return Command(goto=END, update={"messages": [handler(request)]})

    async def awrap(self: Any, request: Any, handler: Any) -> Any:
        return Command(goto=END, update={"messages": [await handler(request)]})

    hook = type("Ends", (middleware.AgentMiddleware,), {"wrap_tool_call": wrap, "awrap_tool_call": awrap})()
    shop, model = Shop(), ScriptedModel([turn(pay(), look())])
    path, messages = walk(way, built("agent", model, shop.tools, middleware=[hook]))

    assert_oracles(messages)
    assert (["agent", "tools", "finalize"], 1, [1999]) == (path, model.calls, shop.paid)


def test_b34_return_direct_is_refused() -> None:
    """The static flag that ends a run on failures too is refused when an agent is built."""
    for name in RUNTIMES:
        checkout = Shop().tools[0].model_copy(update={"return_direct": True})
        with pytest.raises(ValueError, match="return_direct"):
            built(name, ScriptedModel(), [checkout])


# B36: the answer arrives twice


@pytest.mark.parametrize("name", RUNTIMES)
def test_b36_one_copy(name: RuntimeName) -> None:
    """A page that reads a stream of any mode shows the receipt once and no artifact, over the real client."""
    modes = ["updates", "values", "messages"]
    app = built(name, GroqMock([turn(pay())]).model(), Shop().tools, checkpointer=InMemorySaver())
    given, config = {"messages": [("user", "Pay.")]}, {"configurable": {"thread_id": "t"}}
    chunks = [without_artifacts(chunk) for chunk in app.stream(given, config, stream_mode=modes)]

    for alone in modes:
        assert [RECEIPT] == [t for mode, part in chunks if mode == alone and (t := user_text(part))]
    assert "checkout/paid" not in repr(chunks)
    assert 1 == repr(app.get_state(config).values["messages"]).count("id='final-")
    assert [] == [t for part in app.stream(None, config, stream_mode="updates") if (t := user_text(part))]


# B38: a reason changes its type over a checkpoint


def test_b38_after_sqlite(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A thread that was closed and opened again decides as before, says so, and nobody warns of its types."""
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite")
    caplog.set_level(logging.DEBUG)
    config: Any = {"configurable": {"thread_id": "t"}}
    for name in RUNTIMES:
        shop = Shop()
        path = str(tmp_path / f"{name}.sqlite")
        with sqlite.SqliteSaver.from_conn_string(path) as saver:
            built(name, ScriptedModel([turn(pay(), look())]), shop.tools, checkpointer=saver).invoke(
                {"messages": [("user", "Pay.")]}, config
            )
        with sqlite.SqliteSaver.from_conn_string(path) as saver:
            app = built(name, ScriptedModel([turn(pay("d0"))]), shop.tools, checkpointer=saver)
            before = app.get_state(config).values["messages"]
            assert "completed" == decide(before[:-1]).rule
            messages = app.invoke({"messages": [("user", "Again.")]}, config)["messages"]
        assert_oracles(messages)
        assert (RECEIPT, [1999]) == (messages[-1].content, shop.paid)
    assert "unregistered" not in caplog.text.lower()


@pytest.mark.parametrize("reason", Reason)
def test_b38_after_strict_msgpack(reason: Reason) -> None:
    """What a real tool leaves behind is plain data: no checkpoint changes a decision on it."""
    try:
        serde = JsonPlusSerializer(allowed_msgpack_modules=None)
    except TypeError:
        pytest.skip("this langgraph has no strict mode")
    ask = DOMAINS["checkout"].sample
    for ran in everywhere([turn(call(ask.tool, "c0", **ask.args))], shop=forced({"checkout": reason.value})):
        history = ran.messages[:3]
        assert decide(history) == decide(serde.loads_typed(serde.dumps_typed(history)))
        assert ran.answers[0].artifact == json.loads(json.dumps(ran.answers[0].artifact))


# B40: the same failing call until the limit


def test_b40_an_endless_search() -> None:
    """A search that is always refused is asked three times; a receipt from before is read with its text."""
    searches = [turn(look(f"s{at}")) for at in range(30)]
    busy = with_faults(elastic=rejected(times=99))
    for before, kept in (([], ""), ([turn(pay(last_step=False))], f"{RECEIPT}\n\n")):
        for ran in everywhere([*before, *searches], shop=busy):
            assert (3 + len(before), "attempts_exhausted") == (ran.model.calls, ran.rule)
            assert ran.said.startswith(kept)
            assert 3 == len(ran.shop.elastic.requests)


@pytest.mark.parametrize("limit", range(2, 7))
def test_b40_a_callers_limit(limit: int) -> None:
    """A small limit of the caller's ends in a text, with the receipt if the money moved by then."""
    script = [turn(pay(last_step=False)), *(turn(look(f"s{at}")) for at in range(30))]
    for name in RUNTIMES:
        shop = Shop()
        shop.elastic.script(rejected(times=99))
        _, messages = walk("invoke", built(name, ScriptedModel(script), shop.tools), recursion_limit=limit)
        assert_oracles(messages)
        assert bool(shop.paid) == (RECEIPT in messages[-1].content)
        assert NOT_FINISHED in messages[-1].content


# B44: one result larger than the context


def test_b44_a_hit_of_five_megabytes() -> None:
    """A hit of 5 MB is a line to the user and to the model, in every mode; a 5 MB page is a sentence."""
    huge = {"big-1": {"title": "Blue mug", "body": "x" * 5_000_000, "price": 1}}
    for mode in ("hard", "polish", "never"):
        for ran in everywhere(
            [turn(look())], shop=lambda: Shop(elastic=ElasticsearchMock(documents=huge)), stop_mode=mode
        ):
            assert len(str(ran.answers[0].content)) < 400
            assert len(repr(ran.messages)) < 4_000
            assert (SAID if mode == "never" else ran.answers[0].content) == ran.said
    page = answer(502, "<html>" + "x" * 5_000_000, times=9)
    for ran in everywhere([turn(look())], shop=with_faults(elastic=page)):
        assert (["transient"], SAID) == (ran.reasons, ran.said)
        assert len(repr(ran.messages)) < 3_000


# B46: bytes that break saving or sending

WRITTEN: dict[str, tuple[Any, str]] = {
    "NUL": ("Blue\x00 mug", "Blue mug"),
    "a lone surrogate": ("Blue \ud83d mug", "Blue mug"),
    "BOM": ("\ufeffBlue mug", "\ufeffBlue mug"),
    "joined": ("Blue mug 👩‍👩‍👧", "Blue mug 👩‍👩‍👧"),
    "right to left": ("Blue mug ספל כחול", "Blue mug ספל כחול"),
    "combining": ("Blue mug e\u0301", "Blue mug e\u0301"),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_b46_odd_characters(case: str) -> None:
    """Text from a vendor is saved, sent and read; only what breaks that is gone from it."""
    title, shown = WRITTEN[case]
    documents = {"odd-1": {"title": title, "body": "mug", "price": 1}}
    make: Callable[[], Shop] = lambda: Shop(elastic=ElasticsearchMock(documents=documents))  # noqa: E731
    for ran in everywhere(
        [turn(look(query="mug", last_step=False))], shop=make, groq=True, checkpointed=True
    ):
        assert f"1. {shown} [odd-1, price 1.00]: mug" == str(ran.answers[0].content).splitlines()[-1]
        assert shown in ran.model.requests[1]["messages"][-1]["content"]
        json.dumps([message.model_dump() for message in ran.messages]).encode()


def test_b46_bytes_that_are_no_utf8() -> None:
    """A latin-1 body that is declared UTF-8, and one with a BOM, are read as far as they go."""
    body = {"message": "Zugriff verweigert: ungültig", "documentation_url": "https://docs.github.com/rest"}
    text = json.dumps(body, ensure_ascii=False)
    for raw in (text.encode("latin-1"), b"\xef\xbb\xbf" + text.encode()):
        json_type = {"content-type": "application/json; charset=utf-8"}
        make = with_faults(github=answer(403, raw, at=ISSUES, headers=json_type))
        for ran in everywhere([turn(ticket())], shop=make, checkpointed=True):
            assert ["policy_block"] == ran.reasons
            json.dumps([message.model_dump() for message in ran.messages]).encode()


# B47: the place in the list


@pytest.mark.parametrize("place", [0, 1, 2])
def test_b47_any_place_in_the_list(place: int) -> None:
    """Used by itself the stop works as the first, a middle and the last hook, for every reason, async too."""
    middleware = pytest.importorskip("langchain.agents.middleware", reason=NO_LANGCHAIN)
    from langchain.agents import create_agent

    from orchestration.agent import StopOnOutcome
    from orchestration.tools import prepare

    ask = DOMAINS["search"].sample
    for reason in Reason:
        hooks = [type(name, (middleware.AgentMiddleware,), {"before_model": _nothing})() for name in "AB"]
        hooks.insert(place, StopOnOutcome())
        model = ScriptedModel([turn(call(ask.tool, "c0", **ask.args))], narration=SAID)
        app = create_agent(model, prepare(forced({"search": reason.value})().tools), middleware=hooks)
        _, messages = walk("ainvoke", app)
        assert_oracles(messages)
        expected = (2, None) if reason is Reason.TRANSIENT else (1, reason.value)
        assert expected == (model.calls, rule_of(messages[-1]))


def _nothing(self: Any, state: Any, runtime: Any) -> None:
    """Do nothing."""


# Several steps: "find the blue mug, buy it, and if the payment fails open a ticket"

STEPS: dict[tuple[str, ...], tuple[int, str | None, str]] = {
    # how search, payment and ticket end, as far as it comes -> model calls, rule, what the user reads
    ("transient",): (2, None, SAID),
    ("fatal",): (2, None, SAID),
    ("policy_block",): (1, "policy_block", "search"),
    ("completed", "completed"): (3, None, SAID),
    ("completed", "transient"): (3, None, SAID),
    ("completed", "policy_block"): (2, "policy_block", "checkout"),
    ("completed", "fatal", "completed"): (3, "completed", FILED),
    ("completed", "fatal", "transient"): (4, None, SAID),
    ("completed", "fatal", "fatal"): (3, "fatal", "ticketing"),
    ("completed", "fatal", "policy_block"): (3, "policy_block", "ticketing"),
}


@pytest.mark.parametrize("ends", STEPS)
def test_several_steps(ends: tuple[str, ...]) -> None:
    """No step before the last ends the run, but for a refusal by rule; the last one costs no further call."""
    calls, rule, said = STEPS[ends]
    domains = ("search", "checkout", "ticketing")
    samples = [DOMAINS[name].sample for name in domains]
    follows = [{"last_step": False}, {"last_step": False}, {}]
    script = [
        turn(call(ask.tool, name, **ask.args, **last))
        for ask, name, last, _ in zip(samples, domains, follows, ends, strict=False)
    ]

    for ran in everywhere(script, shop=forced(dict(zip(domains, ends, strict=False)))):
        assert (calls, rule, [*ends]) == (ran.model.calls, ran.rule, ran.reasons)
        assert (ran.answers[-1].content if said in domains else said) == ran.said
        assert 0 == ran.model.left
        assert (["completed", "completed"] == [*ends]) == bool(ran.shop.paid)


def test_several_steps_of_a_model_that_sets_no_flag() -> None:
    """A payment that the model takes for its last step ends the run with the receipt: no call more."""
    for ran in everywhere([turn(look(last_step=False)), turn(pay())]):
        assert (2, RECEIPT, [1999]) == (ran.model.calls, ran.said, ran.shop.paid)
    for ran in everywhere([turn(look())]):
        assert (1, FOUND) == (ran.model.calls, ran.said)
