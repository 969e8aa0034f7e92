r"""The hand-built ReAct graph: ``agent``, ``tools``, ``finalize``, and ``polish`` in its place.

Imports ``langchain_core`` and ``langgraph`` only, and runs unchanged from langgraph 0.6.6 on.

::

    START -> agent -(calls)-> tools -(stop)-> finalize -> END
               ^  \-(text)-> END  |
               '-----(continue)---'
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage, ToolCall, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.func import task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from orchestration.asking import Asking, adrive, asking, drive, repaired, steps_left
from orchestration.events import Emitter, Sink
from orchestration.guards import Guard
from orchestration.relay import decided, policy_of, polish_request, polished, relay, stopped, unstreamed
from orchestration.router import DEFAULT_POLICY, Decision, Route, StopPolicy
from orchestration.tools import WHOLE, prepare, unknown_tool

_SPOKEN: Final = frozenset({"human", "ai", "tool"})
_task: Any = task  # its overloads know no method


class State(TypedDict):
    """What a run carries along."""

    messages: Annotated[list[AnyMessage], add_messages]
    """The history, oldest first."""


def should_continue(state: State) -> str:
    """Route after the model spoke: calls are carried out, a text is the answer."""
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The graph's nodes. Each is a pure step around one call to a model or to ToolNode."""

    model: BaseChatModel
    bound: Runnable[Any, AIMessage]
    tool_node: ToolNode
    names: tuple[str, ...]
    policy: StopPolicy
    guards: tuple[Guard, ...]
    durable: bool
    emit: Emitter

    def agent(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        whole, steps = self._ask(state, config)
        return {"messages": [*whole, drive(steps, lambda messages: self.bound.invoke(messages, config))]}

    async def aagent(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        whole, steps = self._ask(state, config)
        return {
            "messages": [*whole, await adrive(steps, lambda messages: self.bound.ainvoke(messages, config))]
        }

    def _ask(self, state: State, config: RunnableConfig) -> tuple[list[Any], Asking]:
        """Return what the history must become first, if a killed run left it broken, and the question."""
        whole = repaired(state["messages"])
        steps = asking(whole or state["messages"], guards=self.guards, steps_left=steps_left(config))
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *whole] if whole else [], steps

    def tools(self, state: State, config: RunnableConfig) -> Any:
        cuts, unknown = self._part(state)
        if len(cuts) == 1:
            return _in_order(state, [self.tool_node.invoke(cuts[0], config)], unknown)
        asked = [_task(name="call")(self._one)(cut) for cut in cuts]
        return _in_order(state, [future.result() for future in asked], unknown)

    async def atools(self, state: State, config: RunnableConfig) -> Any:
        cuts, unknown = self._part(state)
        if len(cuts) == 1:
            return _in_order(state, [await self.tool_node.ainvoke(cuts[0], config)], unknown)
        asked = [_task(name="call")(self._aone)(cut) for cut in cuts]
        return _in_order(state, await asyncio.gather(*asked), unknown)

    def _one(self, cut: State) -> Any:
        return self.tool_node.invoke(cut, get_config())

    async def _aone(self, cut: State) -> Any:
        return await self.tool_node.ainvoke(cut, get_config())

    def _part(self, state: State) -> tuple[list[State], list[ToolMessage]]:
        """Part the calls that ToolNode can run from those that name no tool of ours.

        With a checkpointer every call is a task of its own: else one node would be one unit of resume, which
        runs finished siblings again and hands one call the approval that was given to another.
        """
        calls = _calling(state).tool_calls
        known = [call for call in calls if call["name"] in self.names]
        unknown = [unknown_tool(call, self.names) for call in calls if call not in known]
        parts = [[call] for call in known] if self.durable and len(known) > 1 else [known]
        return [_cut(state, part) for part in parts], unknown

    def route_at_start(self, state: State, config: RunnableConfig) -> str:
        """Route a history that ends in answers as if its tools had just run: create_agent does so too."""
        newest = next((each for each in reversed(state["messages"]) if each.type in _SPOKEN), None)
        return self.route_after_tools(state, config) if isinstance(newest, ToolMessage) else "agent"

    def route_after_tools(self, state: State, config: RunnableConfig) -> str:
        policy = policy_of(config, self.policy)
        decision = decided(state["messages"], policy)
        # Here and not in finalize: a resumed or replayed run enters that without deciding anew.
        self.emit(decision, policy, config)
        return decision.route.value

    def finalize(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        return {
            "messages": [relay(stopped(state["messages"], policy_of(config, self.policy), Route.FINALIZE))]
        }

    def _to_polish(self, state: State, config: RunnableConfig) -> tuple[Decision, list[Any]]:
        policy = policy_of(config, self.policy)
        decision = stopped(state["messages"], policy, Route.POLISH)
        return decision, polish_request(decision, policy)

    def polish(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        decision, request = self._to_polish(state, config)
        with suppress(Exception):  # the voice is a luxury: without it the tools' own text stands
            answer = unstreamed(self.model).invoke(request, config)
            return {"messages": [polished(decision, answer)]}
        return {"messages": [relay(decision)]}

    async def apolish(self, state: State, config: RunnableConfig) -> dict[str, Any]:
        decision, request = self._to_polish(state, config)
        with suppress(Exception):
            answer = await unstreamed(self.model).ainvoke(request, config)
            return {"messages": [polished(decision, answer)]}
        return {"messages": [relay(decision)]}


def _calling(state: State) -> AIMessage:
    message = state["messages"][-1]
    assert isinstance(message, AIMessage)  # should_continue sends nothing else here
    return message


def _cut(state: State, calls: list[ToolCall]) -> Any:
    """Return the state as ToolNode is to see it, with these calls alone; the tools see the whole of it."""
    message = _calling(state)
    if calls == message.tool_calls:
        return state
    return {
        **state,
        "messages": [*state["messages"][:-1], message.model_copy(update={"tool_calls": calls})],
        WHOLE: state["messages"],
    }


def _in_order(state: State, answered: Sequence[Any], unknown: list[ToolMessage]) -> Any:
    """Put the answers in call order, wherever they came from."""
    if any(isinstance(each, list) for each in answered):  # a tool's Command is among them
        flat = [item for each in answered for item in (each if isinstance(each, list) else [each])]
        return [*flat, {"messages": unknown}]
    places = {call["id"]: at for at, call in enumerate(_calling(state).tool_calls)}
    answers = [message for each in answered for message in each["messages"]]
    return {"messages": sorted([*answers, *unknown], key=lambda answer: places.get(answer.tool_call_id, 0))}


def build_graph(
    model: BaseChatModel,
    tools: Sequence[BaseTool | Callable[..., Any]],
    *,
    policy: StopPolicy = DEFAULT_POLICY,
    guards: Sequence[Guard] = (),
    checkpointer: Any = None,
    strict: bool = False,
    sinks: Sequence[Sink] = (),
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the compiled graph.

    Args:
        model: A chat model that can bind tools.
        tools: LangChain tools or functions; ``prepare`` is applied to them here.
        policy: The run's settings; ``config["configurable"]`` can change them for one run.
        guards: Rules of our own.
        checkpointer: What langgraph's ``compile`` takes.
        strict: Raise a tool's exceptions, for tests, in place of answering them.
        sinks: Where the event of each decision goes: ``orchestration.events``.

    Raises:
        ValueError: A tool cannot be prepared; the message says why.
        TypeError: A sink is no plain function.
    """
    prepared = prepare(tools, guards=guards, policy=policy, strict=strict)
    nodes = _Nodes(
        model=model,
        bound=model.bind_tools(prepared) if prepared else model,
        tool_node=ToolNode(prepared, handle_tool_errors=False),
        names=tuple(tool.name for tool in prepared),
        policy=policy,
        guards=tuple(guards),
        durable=bool(checkpointer),
        emit=Emitter(sinks),
    )
    graph = StateGraph(State)
    graph.add_node("agent", RunnableLambda(nodes.agent, nodes.aagent, name="agent"))
    graph.add_node("tools", RunnableLambda(nodes.tools, nodes.atools, name="tools"))
    graph.add_node("finalize", nodes.finalize)
    graph.add_node("polish", RunnableLambda(nodes.polish, nodes.apolish, name="polish"))
    graph.add_conditional_edges(START, nodes.route_at_start, ["agent", "finalize", "polish"])
    graph.add_conditional_edges("agent", should_continue, ["tools", END])
    graph.add_conditional_edges("tools", nodes.route_after_tools, ["agent", "finalize", "polish"])
    graph.add_edge("finalize", END)
    graph.add_edge("polish", END)
    # The budget of turns ends a run, and a run may set its own: this limit is create_agent's.
    return graph.compile(checkpointer=checkpointer).with_config(recursion_limit=10_000)
