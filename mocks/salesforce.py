"""Salesforce's records as they look on the wire.

Where the facts come from:

- reading by a number of one's own, and by id: https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/resources_sobject_upsert.htm
- preconditions: https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/intro_rest_conditional_requests.htm
- statuses and the list of errors: https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/errorcodes.htm
- codes: https://developer.salesforce.com/docs/atlas.en-us.api.meta/api/sforce_api_calls_concepts_core_data_objects.htm

Every write that changes something takes a second, so that two versions of a record differ in their times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any, ClassVar, Final

from mocks.vendor import START, Ask, Fault, Vendor, Wire, Work

NUMBER: Final = "External_Number__c"
"""The unique field that holds a number of one's own."""

FIELDS: Final[Mapping[str, type]] = {
    NUMBER: str,
    "Name": str,
    "Phone": str,
    "BillingCity": str,
    "NumberOfEmployees": int,
}
"""What an account has."""

_LONGEST: Final = {"Name": 255, "Phone": 40, "BillingCity": 40, NUMBER: 80}


class _RefusedError(Exception):
    """A reply that ends the work of an endpoint."""

    def __init__(self, status: int, code: str, message: str, *fields: str) -> None:
        super().__init__(code)
        self.status = status
        self.body = [{"message": message, "errorCode": code, "fields": list(fields)}]


@dataclass(slots=True, kw_only=True)
class Record:
    """One account as the vendor keeps it."""

    id: str
    """Salesforce's own id."""

    fields: dict[str, Any]
    """What it holds."""

    modified: int = START
    """Seconds since 1970."""


class SalesforceMock(Vendor):
    """Accounts.

    Args:
        faults: what goes wrong, see `Fault`.
        records: what there is: number -> fields.
        locked: numbers of records that somebody has to approve first.
        readonly: whether the session's user may not write.
        spent: whether the day's requests are used up.
        meddled: numbers of records that somebody else changes right after they are first read.
        base_url, key: see `Vendor`.
    """

    url: ClassVar[str] = "https://example.my.salesforce.com"
    json_type: ClassVar[str] = "application/json;charset=UTF-8"

    def __init__(
        self,
        *,
        faults: Iterable[Fault] = (),
        records: Mapping[str, Mapping[str, Any]] | None = None,
        locked: Iterable[str] = (),
        readonly: bool = False,
        spent: bool = False,
        meddled: Iterable[str] = (),
        base_url: str | None = None,
        key: str = "mock-session",
    ) -> None:
        """Start with these records."""
        super().__init__(faults=faults, base_url=base_url, key=key)
        self.locked, self.readonly, self.spent = frozenset(locked), readonly, spent
        self.meddled = set(meddled)
        self.records: dict[str, Record] = {}
        self.changes: list[str] = []
        for number, fields in (records or {}).items():
            self._add({NUMBER: number, **fields})
        place = r"/services/data/v\d+\.0/sobjects/(?P<object>\w+)"
        self.route("POST", place, self._create)
        self.route("GET", rf"{place}/(?P<field>\w+)/(?P<number>[^/]+)", self._read)
        self.route("PATCH", rf"{place}/(?P<id>\w+)", self._change)

    # Oracles and levers for tests.

    def done(self) -> int:
        """Return how often a record came to hold something else than before."""
        with self._lock:
            return len(self.changes)

    def fields(self, number: str) -> dict[str, Any] | None:
        """Return what the record of a number holds; None if there is none."""
        with self._lock:
            found = self._by_number(number)
            return None if found is None else dict(found.fields)

    def meddle(self, number: str, **fields: Any) -> None:
        """Change a record as somebody else would."""
        with self._lock:
            found = self._by_number(number)
            assert found is not None
            self.now += 1
            found.fields |= fields
            found.modified = self.now

    # What stands around every endpoint.

    def perform(self, ask: Ask, work: Work) -> Wire:
        """Check the session and the limits, then do the work."""
        try:
            self._admit(ask)
            return work(ask)
        except _RefusedError as refused:
            return self.reply(refused.status, refused.body)

    def _admit(self, ask: Ask) -> None:
        if ask.headers.get("authorization") != f"Bearer {self.key}":
            raise _RefusedError(401, "INVALID_SESSION_ID", "Session expired or invalid")
        if self.spent:
            raise _RefusedError(403, "REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.")
        if ask.parts["object"] != "Account":
            raise _RefusedError(404, "NOT_FOUND", "The requested resource does not exist")

    # Endpoints.

    def _read(self, ask: Ask) -> Wire:
        if ask.parts["field"] != NUMBER:
            message = f"Provided external ID field does not exist or is not accessible: {ask.parts['field']}"
            raise _RefusedError(404, "NOT_FOUND", message)
        number = ask.parts["number"]
        found = self._by_number(number)
        if found is None:
            raise _RefusedError(404, "NOT_FOUND", "The requested resource does not exist")
        wire = self.reply(200, self._json(found), last_modified=_http_date(found.modified))
        if number in self.meddled:
            self.meddled.remove(number)
            self.meddle(number, Phone="+1 555 0100")
        return wire

    def _create(self, ask: Ask) -> Wire:
        fields = self._checked(ask)
        if not fields.get("Name"):
            raise _RefusedError(400, "REQUIRED_FIELD_MISSING", "Required fields are missing: [Name]", "Name")
        other = self._by_number(str(fields.get(NUMBER)))
        if other is not None:
            message = f"duplicate value found: {NUMBER} duplicates value on record with id: {other.id}"
            raise _RefusedError(400, "DUPLICATE_VALUE", message)
        made = self._add(fields)
        self.changes.append(made.id)
        return self.reply(201, {"id": made.id, "success": True, "errors": []})

    def _change(self, ask: Ask) -> Wire:
        found = self.records.get(ask.parts["id"])
        if found is None:
            raise _RefusedError(404, "NOT_FOUND", "The requested resource does not exist")
        since = ask.headers.get("if-unmodified-since")
        if since is not None and found.modified > int(parsedate_to_datetime(since).timestamp()):
            return Wire(status=412)
        fields = self._checked(ask)
        if found.fields.get(NUMBER) in self.locked:
            raise _RefusedError(400, "ENTITY_IS_LOCKED", "the entity is locked for editing")
        changed = {**found.fields, **fields}
        if changed != found.fields:
            self.now += 1
            found.fields, found.modified = changed, self.now
            self.changes.append(found.id)
        return Wire(status=204)

    # Parts.

    def _by_number(self, number: str) -> Record | None:
        wanted = number.casefold()
        return next(
            (one for one in self.records.values() if one.fields.get(NUMBER, "").casefold() == wanted), None
        )

    def _add(self, fields: Mapping[str, Any]) -> Record:
        self.now += 1
        made = Record(id=f"001{len(self.records) + 1:012d}AAA", fields=dict(fields), modified=self.now)
        self.records[made.id] = made
        return made

    def _checked(self, ask: Ask) -> dict[str, Any]:
        if self.readonly:
            message = "insufficient access rights on object id"
            raise _RefusedError(403, "INSUFFICIENT_ACCESS_OR_READONLY", message)
        try:
            given = ask.json()
        except ValueError:
            given = None
        if not isinstance(given, dict):
            raise _RefusedError(400, "JSON_PARSER_ERROR", "Unexpected character")
        return {name: _value(name, value) for name, value in given.items()}

    def _json(self, record: Record) -> dict[str, Any]:
        where = f"/services/data/v62.0/sobjects/Account/{record.id}"
        return {
            "attributes": {"type": "Account", "url": where},
            "Id": record.id,
            "IsDeleted": False,
            **dict.fromkeys(FIELDS),
            **record.fields,
            "LastModifiedDate": datetime.fromtimestamp(record.modified, UTC).strftime(
                "%Y-%m-%dT%H:%M:%S.000+0000"
            ),
        }


def _value(name: str, value: Any) -> Any:
    """Return a value as Salesforce keeps it, or refuse it."""
    if name not in FIELDS:
        raise _RefusedError(400, "INVALID_FIELD", f"No such column '{name}' on sobject of type Account", name)
    if isinstance(value, str):
        value = value.strip() or None
    if value is not None and not isinstance(value, FIELDS[name]):
        message = f"Cannot deserialize instance of {FIELDS[name].__name__}"
        raise _RefusedError(400, "JSON_PARSER_ERROR", message)
    if isinstance(value, str) and len(value) > _LONGEST[name]:
        message = f"{name}: data value too large (max length={_LONGEST[name]})"
        raise _RefusedError(400, "STRING_TOO_LONG", message, name)
    if name == "Phone" and isinstance(value, str) and not re.fullmatch(r"\+?[0-9 ()/-]+", value):
        message = "A phone number has digits alone"
        raise _RefusedError(400, "FIELD_CUSTOM_VALIDATION_EXCEPTION", message, name)
    return value


def _http_date(seconds: int) -> str:
    return format_datetime(datetime.fromtimestamp(seconds, UTC), usegmt=True)
