"""One wrapper for every tool in every runtime.

``prepare`` puts around each tool what must not depend on the runtime: the ``last_step`` flag, the guards,
the resend guard, masking, and the net that turns any exception into an answer. Guards as hooks were
measured to fail: a foreign jump to the tools node ran denied calls.
"""

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from logging import ERROR
from typing import Annotated, Any, Final, get_args, get_type_hints

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import InjectedState
from pydantic import BaseModel, ConfigDict, PrivateAttr, create_model
from pydantic_core.core_schema import ErrorType

from orchestration.guards import Guard, Run, clean, cleaned, essence
from orchestration.log import log
from orchestration.outcomes import NOT_CARRIED_OUT, UNKNOWN_TOOL, Outcome, plain, text_of
from orchestration.reasons import Effect, Reason
from orchestration.router import DEFAULT_POLICY, StopPolicy, outcome_of, turns

LAST_STEP: Final = "last_step"
LAST_STEP_SCHEMA: Final[dict[str, Any]] = {
    "type": "boolean",
    "default": True,
    "description": "false if you will call another tool after this one to finish what the user asked",
}
EARLIER_UNCONFIRMED: Final = "An earlier attempt is still not confirmed."

UNREADABLE: Final = "unreadable_arguments"
"""The one argument of a call whose arguments were no JSON object: it is answered, never run."""

NOT_READABLE: Final = "The arguments were no readable JSON object. Nothing was done."

WHOLE: Final = "whole_turn"
"""Where a state that is cut down to one call of a turn keeps the whole history."""

_STATE: Final = "run_state"
"""The argument through which ToolNode hands the graph's state in; no tool of ours may have it."""

_BYTES: Final = frozenset({"base64", "data", "source", "image_url", "input_audio", "file"})
"""Where a content block keeps what is no text: a detector would find numbers in it, and break it."""


def prepare(
    tools: Sequence[BaseTool | Callable[..., Any]],
    *,
    guards: Sequence[Guard] = (),
    policy: StopPolicy = DEFAULT_POLICY,
    strict: bool = False,
) -> list[BaseTool]:
    """Return the tools as any runtime is to run them.

    Args:
        tools: LangChain tools, or functions to make tools of. Prepared ones are left as they are.
        guards: Rules of our own; their order does not matter.
        policy: The run's settings.
        strict: Raise a tool's exceptions, for tests, in place of answering them.

    Raises:
        ValueError: A tool has ``return_direct`` or a ``last_step`` of its own, two share a name, or
            guards are given for tools that were prepared without them.
        TypeError: Something in the list is no tool.
    """
    made = [tool if isinstance(tool, BaseTool) else _tool(tool) for tool in tools]
    names = [tool.name for tool in made]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"two tools are named {twice[0]!r}: rename one, the model cannot tell them apart"
        raise ValueError(msg)
    schemas = {tool.name: _schema(tool) for tool in made}
    declared = {
        tool.name: {**(tool.metadata or {}), "defaults": _defaults(schemas[tool.name])} for tool in made
    }
    in_order = tuple(sorted(guards, key=lambda guard: guard.name))  # whatever order they are listed in
    return [_prepared(tool, schemas[tool.name], in_order, policy, strict, declared) for tool in made]


def _tool(function: Callable[..., Any]) -> BaseTool:
    if not callable(function) or isinstance(function, Mapping):
        msg = f"{function!r} is no tool: give a LangChain tool or a function with a docstring"
        raise TypeError(msg)
    return StructuredTool.from_function(function)


def _prepared(
    tool: BaseTool,
    schema: dict[str, Any],
    guards: tuple[Guard, ...],
    policy: StopPolicy,
    strict: bool,
    declared: Mapping[str, Mapping[str, Any]],
) -> BaseTool:
    if isinstance(tool, PreparedTool):
        if guards and guards != tool._guards:  # noqa: SLF001 - our own class
            msg = f"tool {tool.name!r} is prepared already: give its guards where it was prepared"
            raise ValueError(msg)
        return tool
    if tool.return_direct:
        msg = f"tool {tool.name!r} has return_direct: remove it, its outcome says when the run ends"
        raise ValueError(msg)
    if LAST_STEP in schema.get("properties", {}):
        msg = f"tool {tool.name!r} has an argument {LAST_STEP!r} of its own: rename it"
        raise ValueError(msg)
    schema.setdefault("type", "object")
    schema["properties"] = {**schema.get("properties", {}), LAST_STEP: dict(LAST_STEP_SCHEMA)}
    extras = {"extras": extras} if (extras := getattr(tool, "extras", None)) else {}  # langchain-core 1.x
    prepared = PreparedTool(
        name=tool.name,
        description=tool.description,
        args_schema=schema,
        metadata=tool.metadata,
        tags=tool.tags,
        **extras,
    )
    prepared._inner, prepared._guards, prepared._policy = tool, guards, policy  # noqa: SLF001
    prepared._strict, prepared._declared = strict, declared  # noqa: SLF001
    prepared._injected = _injected(tool)  # noqa: SLF001
    return prepared


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a call may leave out, and what they are then."""
    found: dict[str, Any] = {}
    for name, each in schema.get("properties", {}).items():
        if isinstance(each, Mapping) and "default" in each:
            found[name] = each["default"]
    return found


def _schema(tool: BaseTool) -> dict[str, Any]:
    """Return a copy of the JSON schema that the model sees."""
    schema: Any = tool.tool_call_schema
    if isinstance(schema, dict):
        return deepcopy(schema)
    as_json = getattr(schema, "model_json_schema", None) or schema.schema  # pydantic 2, or its v1 shim
    return deepcopy(dict(as_json()))


def _injected(tool: BaseTool) -> dict[str, Any]:
    """Return the arguments that a runtime, not the model, gives to the tool, with their types."""
    found: dict[str, Any] = {}
    for owner in (getattr(tool, "func", None), getattr(tool, "coroutine", None), tool.get_input_schema()):
        try:
            hints = get_type_hints(owner, include_extras=True) if owner is not None else {}
        except (NameError, TypeError):
            continue  # annotations that cannot be resolved are not injected by ToolNode either
        found |= {name: hint for name, hint in hints.items() if _is_injected(name, hint)}
    return found


def _is_injected(name: str, hint: Any) -> bool:
    parts = (hint, getattr(hint, "__origin__", None), *getattr(hint, "__metadata__", ()))
    classes = [part if isinstance(part, type) else type(part) for part in parts]
    marked = any(
        issubclass(cls, InjectedToolArg) or cls.__name__ in {"ToolRuntime", "_DirectlyInjectedToolArg"}
        for cls in classes
    )
    return marked or (name == "runtime" and "ToolRuntime" in str(hint))


def _whole(given: Any) -> Any:
    """Return what a runtime injected, with the whole turn where its state was cut down to one call."""
    if isinstance(given, dict) and WHOLE in given:
        return {name: value for name, value in given.items() if name != WHOLE} | {"messages": given[WHOLE]}
    if isinstance(getattr(given, "state", None), dict) and WHOLE in given.state:  # a ToolRuntime
        return replace(given, state=_whole(given.state))
    return given


class _Given:
    """What the runtime gave along with a call. A class of its own, so that traces print no state."""

    __slots__ = ("call_id", "injected", "state")

    def __init__(self, call_id: str, state: Any, injected: dict[str, Any]) -> None:
        self.call_id, self.state, self.injected = call_id, state, injected

    def __repr__(self) -> str:
        return "<given by the runtime>"

    @property
    def messages(self) -> Sequence[Any]:
        state = self.state
        if isinstance(state, Mapping):
            return state.get("messages") or ()
        return state if isinstance(state, list) else getattr(state, "messages", None) or ()


class PreparedTool(BaseTool):
    """A tool as every runtime is to run it. Made by ``prepare``."""

    _inner: BaseTool = PrivateAttr()
    _guards: tuple[Guard, ...] = PrivateAttr(default=())
    _policy: StopPolicy = PrivateAttr(default=DEFAULT_POLICY)
    _strict: bool = PrivateAttr(default=False)
    _declared: Mapping[str, Mapping[str, Any]] = PrivateAttr(default_factory=dict)
    _injected: dict[str, Any] = PrivateAttr(default_factory=dict)
    _injecting: type[BaseModel] | None = PrivateAttr(default=None)

    def get_input_schema(self, config: RunnableConfig | None = None) -> type[BaseModel]:  # noqa: ARG002
        """Return what ToolNode reads to find out what to inject: our state, and the tool's own.

        ``args_schema`` is plain JSON, so that no state is validated and dumped on every call.
        """
        if self._injecting is None:
            fields: dict[str, Any] = {name: (hint, None) for name, hint in self._injected.items()}
            fields[_STATE] = (Annotated[Any, InjectedState], None)
            config_ = ConfigDict(extra="allow", arbitrary_types_allowed=True)
            self._injecting = create_model(f"{self.name}_injected", __config__=config_, **fields)
        return self._injecting

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Run one tool call; returns its ToolMessage."""
        return super().invoke(self._given(input), config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Run one tool call; returns its ToolMessage."""
        return await super().ainvoke(self._given(input), config, **kwargs)

    def _given(self, call: Any) -> Any:
        """Take what was injected out of the arguments: traces print those."""
        if not isinstance(call, Mapping):
            call = {next(iter(self.args), "input"): call}
        whole = call.get("type") == "tool_call"
        args = dict(call.get("args") or {} if whole else call)
        state = _whole(args.pop(_STATE, None))
        injected = {name: _whole(args.pop(name)) for name in self._injected if name in args}
        args["run_given"] = _Given((call.get("id") if whole else None) or "", state, injected)
        return {**call, "args": args} if whole else args

    def _run(
        self, /, *, run_given: Annotated[Any, InjectedToolArg], run_config: RunnableConfig, **arguments: Any
    ) -> Any:
        try:
            if (answer := self._before(run_given, arguments, run_config)) is not None:
                return answer
            return self._after(
                self._inner.invoke(self._call(run_given, arguments), _quiet(run_config)), run_given
            )
        except GraphBubbleUp:
            raise  # interrupts are exceptions too
        except Exception as error:  # no exception leaves a tool
            return self._failed(error, run_given)

    async def _arun(
        self, /, *, run_given: Annotated[Any, InjectedToolArg], run_config: RunnableConfig, **arguments: Any
    ) -> Any:
        try:
            if (answer := self._before(run_given, arguments, run_config)) is not None:
                return answer
            return self._after(
                await self._inner.ainvoke(self._call(run_given, arguments), _quiet(run_config)), run_given
            )
        except GraphBubbleUp:
            raise
        except Exception as error:  # no exception leaves a tool
            return self._failed(error, run_given)

    def _call(self, given: _Given, arguments: Mapping[str, Any]) -> dict[str, Any]:
        args = {name: value for name, value in arguments.items() if name != LAST_STEP}
        return {
            "type": "tool_call",
            "name": self.name,
            "id": given.call_id,
            "args": {**args, **given.injected},
        }

    def _before(
        self, given: _Given, arguments: Mapping[str, Any], config: RunnableConfig
    ) -> ToolMessage | None:
        """Return the answer of a call that must not run (again), else None."""
        own = {"name": self.name, "id": given.call_id, "args": dict(arguments)}
        turn = next(turns(given.messages), None)
        calls: list[Mapping[str, Any]] = [call for call, _ in turn.answers] if turn else []
        at = _position(own, calls)
        answered = turn.answers[at][1] if turn and at is not None else None
        if at is None:  # run by hand, or a middleware changed the id as well
            calls, at = [*calls, own], len(calls)
        calls[at] = own  # what is about to run: a middleware may have changed the model's arguments
        if answered is not None:
            return answered  # type: ignore[no-any-return]  # a replay: the state has it already
        run = Run(given.messages, config.get("configurable") or {}, self._declared)
        for guard in self._guards:
            if (said := guard.check(calls, run).get(at)) is not None:
                return self._message(Outcome(said, Reason.POLICY_BLOCK, f"guard/{guard.name}"), given)
        if (recorded := self._recorded(own, given.messages)) is not None:
            return self._message(_sticky(recorded, given.messages, self.name), given)
        return self._bad_arguments(given, arguments)

    def _recorded(self, own: Mapping[str, Any], messages: Sequence[Any]) -> Outcome | None:
        """Return how the same call ended earlier in this run, if nothing can change that."""
        free_text = (self.metadata or {}).get("free_text") or ()
        defaults = self._declared.get(self.name, {}).get("defaults") or {}
        same = essence(own, free_text, defaults)
        for turn in list(turns(messages))[1:]:
            for call, answer in turn.answers:
                if call["name"] == self.name and essence(call, free_text, defaults) == same:
                    outcome = outcome_of(answer)
                    if outcome is not None and outcome.reason in {Reason.FATAL, Reason.POLICY_BLOCK}:
                        return outcome
        return None

    def _bad_arguments(self, given: _Given, arguments: Mapping[str, Any]) -> ToolMessage | None:
        """Validate before the tool runs: a ValidationError from inside it is a bug, not an argument."""
        if UNREADABLE in arguments:
            return self._message(Outcome(NOT_READABLE, Reason.TRANSIENT, "tool/arguments"), given)
        schema = self._inner.args_schema
        if not isinstance(schema, type):
            return None
        validate = schema.model_validate if issubclass(schema, BaseModel) else schema.parse_obj
        try:
            validate(self._call(given, arguments)["args"] | _ids(schema, given.call_id))
        except ValueError as error:  # the ValidationError of pydantic 2, or of its v1 shim
            faults = "; ".join(dict.fromkeys(map(_fault, error.errors())))  # type: ignore[attr-defined]
            said = f"The arguments were not accepted: {faults}. Nothing was done."
            return self._message(Outcome(said, Reason.TRANSIENT, "tool/arguments"), given)
        return None

    def _after(self, raw: Any, given: _Given) -> Any:
        if not isinstance(raw, ToolMessage):
            return raw  # a Command directs the graph: it is the tool's to answer
        outcome = outcome_of(raw)
        if outcome is None:
            # An ordinary tool: the model reads its answer, no router trusts it.
            artifact = cleaned(plain(raw.artifact), self._guards) if self._guards else raw.artifact
            content = cleaned_content(raw.content, self._guards)
            own = {"content": content, "artifact": artifact, "tool_call_id": given.call_id}
            return raw.model_copy(update=own)
        sticky = _sticky(outcome, given.messages, self.name)
        message = self._message(sticky, given)
        message.artifact |= {
            n: cleaned(plain(v), self._guards) for n, v in raw.artifact.items() if n not in message.artifact
        }
        if isinstance(raw.content, list) and raw.content:  # images and the like go to the model as they are
            more = [{"type": "text", "text": EARLIER_UNCONFIRMED}] if sticky is not outcome else []
            message.content = [*cleaned_content(raw.content, self._guards), *more]
        return message

    def _message(self, outcome: Outcome, given: _Given) -> ToolMessage:
        return answer_with(outcome, self.name, given.call_id, self._guards)

    def _failed(self, error: Exception, given: _Given) -> ToolMessage:
        """Answer for a tool that raised: nobody knows what it had done by then."""
        if self._strict or _is_invalid_resume(error):
            raise error
        # Neither the message nor the arguments nor source lines: each may hold a URL with a key.
        frames = traceback.extract_tb(error.__traceback__)
        places = "\n".join(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
        log(ERROR, "tool %s raised %s\n%s", self.name, type(error).__name__, places)
        evidence = {"exception": type(error).__name__}
        outcome = Outcome(NOT_CARRIED_OUT, Reason.FATAL, "tool/bug", Effect.UNKNOWN, evidence=evidence)
        return answer_with(outcome, self.name, given.call_id)  # uncleaned: a guard may be what raised


def _is_invalid_resume(error: Exception) -> bool:
    """Whether a resume value did not fit its interrupt: the run must be resumed anew, not answered."""
    try:
        from langgraph.errors import is_invalid_resume  # langgraph 1.2 and newer
    except ImportError:
        return False
    return bool(is_invalid_resume(error))


def _position(own: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> int | None:
    """Return where in its turn a call stands: by id, and where ids are repeated by what it says."""
    places = [at for at, call in enumerate(calls) if (call.get("id") or "") == own["id"]]
    if len(places) < 2:  # noqa: PLR2004 - one, or none
        return places[0] if places else None
    return next(
        (at for at in places if calls[at]["name"] == own["name"] and calls[at].get("args") == own["args"]),
        None,
    )


def _quiet(config: RunnableConfig) -> RunnableConfig:
    """Return the config without callbacks: the tool's own events would show what masking hides."""
    return {**config, "callbacks": []}


def _ids(schema: Any, call_id: str) -> dict[str, str]:
    fields = getattr(schema, "model_fields", {})
    return {name: call_id for name, field in fields.items() if "InjectedToolCallId" in str(field.metadata)}


def _fault(error: Mapping[str, Any]) -> str:
    """Say what was wrong with one argument. Other prose than pydantic's own may repeat what it was given."""
    where = ".".join(str(part) for part in error["loc"]) or "the arguments"
    return f"{where}: {error['msg'][:200] if error['type'] in _SILENT else 'the value is not accepted'}"


_SILENT: Final = frozenset(get_args(ErrorType)) - {
    *("value_error", "assertion_error", "union_tag_invalid", "uuid_parsing"),
    *("get_attribute_error", "mapping_type", "iteration_error", "no_such_attribute"),
}
"""Kinds of error whose text is pydantic's own and does not repeat the value."""


def _sticky(outcome: Outcome, messages: Sequence[Any], tool: str) -> Outcome:
    """Keep ``unknown`` until something proves the thing done: a late success beats any single reply.

    A call that was interrupted, or whose tool raised, has no key: it may have been about the same thing.
    """
    if outcome.key is None or outcome.reason is Reason.COMPLETED or outcome.effect is Effect.UNKNOWN:
        return outcome
    for name, seen in _outcomes(messages):
        keyless = seen.key is None and seen.effect is Effect.UNKNOWN and name == tool
        if keyless or seen.key == outcome.key:
            if seen.effect is not Effect.UNKNOWN:
                return outcome
            said = f"{outcome.content} {EARLIER_UNCONFIRMED}"
            return replace(outcome, effect=Effect.UNKNOWN, content=said)
    return outcome


def _outcomes(messages: Sequence[Any]) -> Iterator[tuple[str | None, Outcome]]:
    """Yield every readable outcome of the thread with its tool's name, the newest first."""
    for message in reversed(messages):
        if isinstance(message, ToolMessage) and (outcome := outcome_of(message)) is not None:
            yield message.name, outcome


def cleaned_content(content: Any, guards: Sequence[Guard]) -> Any:
    """Return a message's content, a string or blocks, cleaned by the guards; bytes are left as they are."""
    if isinstance(content, str):
        return clean(text_of(content), guards)
    return [
        {name: value if name in _BYTES else cleaned(plain(value), guards) for name, value in block.items()}
        if isinstance(block, dict)
        else cleaned(plain(block), guards)
        for block in content
    ] or text_of(content)


def unknown_tool(call: Mapping[str, Any], known: Sequence[str]) -> ToolMessage:
    """Answer a call of a tool that does not exist."""
    said = f"There is no tool of that name. There are: {', '.join(known) or 'none'}."
    return answer_with(Outcome(said, Reason.TRANSIENT, UNKNOWN_TOOL), call["name"], call["id"] or "")


def answer_with(outcome: Outcome, tool: str, call_id: str, guards: Sequence[Guard] = ()) -> ToolMessage:
    """Return the message that answers a call, cleaned by the guards."""
    content, artifact = outcome.as_tool_result()
    for name in ("domain", "evidence", "rule", "vendor_code"):  # a foreign tool may have put anything there
        artifact[name] = cleaned(artifact[name], guards)
    return ToolMessage(
        content=clean(text_of(content), guards),
        artifact=artifact,
        name=tool,
        tool_call_id=call_id,
        status="error" if outcome.failed else "success",
    )
