"""``write_record``: bring one record to the values that are asked for, once, and over nobody else's change.

A record is known by a number of ours, in a field that Salesforce keeps unique. What holds:

- before anything is sent, the record is read: if it holds every value already, the same write was done
  before, and nothing is sent;
- a new record is created with its number in it: a second one of that number is refused, so a request that
  arrives late cannot make one, nor write over what came after it;
- a change names the version that was read: if somebody else was faster it is refused (412);
- a write that was saved, or whose answer is lost, is proven by reading the record again.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import httpx
from langchain_core.tools import BaseTool

from domains.mapping import Call, Flow, Reply
from domains.records.rules import BOOK
from domains.tool import as_tool, connect
from orchestration.outcomes import Outcome, printable
from orchestration.reasons import Effect, Reason

Value: TypeAlias = str | int | float | bool | None
"""What a field can hold."""

VERSION: Final = "v62.0"
"""Of Salesforce's API."""

LONGEST_VALUE: Final = 131_072
"""Characters: the longest text field there is."""

_CONTESTED: Final = frozenset({"records/stale", "records/exists", "records/conflict"})
"""Rows that say that somebody was faster. It may have been an earlier request of ours that came late."""

_OWN: Final = frozenset({"id", "attributes", "createddate", "lastmodifieddate", "systemmodstamp"})
"""Fields that the system keeps itself."""

_NUMBER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,79}")
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")


def tools(
    *,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    instance: str = "https://example.my.salesforce.com",
    sobject: str = "Account",
    number_field: str = "External_Number__c",
) -> list[BaseTool]:
    """Return the tool ``write_record``, bound to one kind of record.

    Args:
        client: Sends a sync run's requests. With neither client Salesforce itself is used, with the session
            in ``SALESFORCE_TOKEN``.
        async_client: Sends an async run's requests.
        instance: The organisation's own address at Salesforce, used without clients.
        sobject: The kind of record. Configuration, as is the next one.
        number_field: The unique field that holds our number.

    Raises:
        ValueError: A name is of another form.
        RuntimeError: No client is given and no session is set.
    """
    for name in (sobject, number_field):
        if not _NAME.fullmatch(name):
            raise ValueError(f"sobject and number_field are names of letters, digits and _, not {name!r}")
    if client is None and async_client is None:
        client, async_client = connect(instance, "SALESFORCE_TOKEN", _headers)
    flow = record_flow(sobject, number_field)
    return [as_tool(flow, client=client, async_client=async_client)]


def record_flow(sobject: str, number_field: str) -> Callable[..., Flow]:
    """Return the flow for one kind of record."""
    desk = _Desk(f"/services/data/{VERSION}/sobjects/{sobject}", number_field)

    def write_record(record_id: str, fields: dict[str, Value]) -> Flow:
        """Write a record: create it, or change some of its fields. Writing the same again changes nothing.

        Args:
            record_id: The record's number, such as ACME-7.
            fields: What to write: names of fields with their values; null empties a field.
        """
        number = " ".join(printable(record_id).split())
        wanted = {name.strip(): printable(v) if isinstance(v, str) else v for name, v in fields.items()}
        about = json.dumps(["records", sobject, number_field, number.casefold()])
        outcome = yield from desk.write(number, wanted)
        return replace(outcome, key=sha256(about.encode()).hexdigest()[:32])

    return write_record


def _headers(session: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {session}", "accept": "application/json"}


@dataclass(frozen=True, slots=True)
class _Desk:
    """The records of one kind."""

    path: str
    number_field: str

    def write(self, number: str, fields: Mapping[str, Value]) -> Flow:
        if (flaw := self._flaw(number, fields)) is not None:
            return BOOK.pick(flaw, Reply())
        read = Call("GET", f"{self.path}/{self.number_field}/{quote(number, safe='')}")
        before = yield read
        held = _record(before)
        if held is not None and _holds(held, fields):
            return _proven("records/as-asked", before, number, already_applied=True)
        call = self._create(number, fields) if _absent(before) else self._change(held, before, fields)
        if call is None:
            return _unread(before)
        reply = yield call
        outcome = BOOK.classify(reply)
        if outcome.reason is Reason.COMPLETED:
            return _proven(outcome.rule, reply, number)
        if outcome.effect is Effect.NONE and outcome.rule not in _CONTESTED:
            return outcome
        after = _record((yield read))
        return _settled(outcome, reply, number, holds=after is not None and _holds(after, fields))

    def _flaw(self, number: str, fields: Mapping[str, Value]) -> str | None:
        """Return the row that speaks against sending this at all."""
        if not _NUMBER.fullmatch(number):
            return "records/no-number"
        if not fields or not all(map(self._writable, fields)):
            return "records/no-fields"
        long = any(isinstance(value, str) and len(value) > LONGEST_VALUE for value in fields.values())
        return "records/too-long" if long else None

    def _writable(self, name: str) -> bool:
        taken = name.casefold() in {*_OWN, self.number_field.casefold()}
        return not taken and _NAME.fullmatch(name) is not None

    def _create(self, number: str, fields: Mapping[str, Value]) -> Call:
        return Call("POST", self.path, json={**fields, self.number_field: number}, write=True)

    def _change(
        self, held: Mapping[str, Any] | None, reply: Reply, fields: Mapping[str, Value]
    ) -> Call | None:
        """Return a change that is refused if the record is no longer as it was read."""
        version = None if held is None else _version(held, reply)
        if held is None or version is None or not held["Id"].isalnum():
            return None
        return Call("PATCH", f"{self.path}/{held['Id']}", json=dict(fields), headers=version, write=True)


def _version(held: Mapping[str, Any], reply: Reply) -> dict[str, str] | None:
    """Name the version of a record: by its tag if there is one, else by the time of its last change."""
    if tag := reply.named.get("etag"):
        return {"if-match": tag}
    if named := reply.named.get("last-modified"):
        return {"if-unmodified-since": named}
    try:
        changed = datetime.strptime(held["LastModifiedDate"], "%Y-%m-%dT%H:%M:%S.%f%z")
    except (KeyError, TypeError, ValueError):
        return None
    return {"if-unmodified-since": format_datetime(changed.astimezone(UTC), usegmt=True)}


def _record(reply: Reply) -> dict[str, Any] | None:
    """Return the record that a reply holds; None if it holds none."""
    body = reply.body if reply.status == httpx.codes.OK else None
    return body if isinstance(body, dict) and isinstance(body.get("Id"), str) else None


def _absent(reply: Reply) -> bool:
    """Whether there is no record of this number. A missing field, or a gateway's page, is no proof."""
    missing = reply.status == httpx.codes.NOT_FOUND and "NOT_FOUND" in reply.found.strings["errorCode"]
    return missing and "external id field" not in reply.lower


def _holds(record: Mapping[str, Any], fields: Mapping[str, Value]) -> bool:
    """Whether a record holds these values. The names of fields have no case."""
    held = {name.casefold(): value for name, value in record.items()}
    return all(name.casefold() in held and _same(held[name.casefold()], v) for name, v in fields.items())


def _same(held: object, wanted: Value) -> bool:
    """Whether a field holds a value, as Salesforce keeps it: texts are trimmed, an empty one is null."""
    if isinstance(held, bool) or isinstance(wanted, bool):
        return held is wanted
    if isinstance(held, int | float) and isinstance(wanted, int | float):
        return float(held) == float(wanted)
    one, other = (value.strip() if isinstance(value, str) else value for value in (held, wanted))
    return (one or None) == (other or None) if {type(one), type(other)} <= {str, type(None)} else False


def _settled(outcome: Outcome, reply: Reply, number: str, *, holds: bool) -> Outcome:
    """Return what a write came to whose answer proves nothing, or says that somebody was faster.

    Args:
        outcome: What the answer says.
        reply: The answer.
        number: The record's number.
        holds: Whether the record, read anew, holds what was to be written.
    """
    saved = reply.status == httpx.codes.NO_CONTENT
    if holds and outcome.effect is Effect.NONE:
        return _proven("records/as-asked", reply, number, already_applied=True)
    if holds:
        return _proven("records/changed", reply, number, **({} if saved else {"answer_lost": True}))
    if saved or (outcome.effect is Effect.UNKNOWN and outcome.reason is not Reason.TRANSIENT):
        return BOOK.pick("records/unconfirmed", reply)
    return outcome


def _proven(rule: str, reply: Reply, number: str, **facts: object) -> Outcome:
    """Return the outcome of a record that is as asked."""
    outcome = BOOK.pick(rule, reply, **facts)
    return replace(outcome, content=f"{outcome.content} Its number is {number}.", effect=Effect.APPLIED)


def _unread(reply: Reply) -> Outcome:
    """Return why a record could not be read. Nothing was sent, whatever stands in its place."""
    outcome = BOOK.classify(reply)
    # A reply that is no record cannot speak of success, whatever it looks like.
    if reply.response is not None and reply.response.is_success:
        outcome = BOOK.pick("records/unreadable", reply)
    return replace(outcome, content=f"{outcome.content} {BOOK.unchanged}")
