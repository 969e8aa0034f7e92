"""Power BI's export of reports to files, as it looks on the wire.

Where the facts come from:

- starting an export: https://learn.microsoft.com/rest/api/power-bi/reports/export-to-file-in-group
- asking about it: https://learn.microsoft.com/rest/api/power-bi/reports/get-export-to-file-status-in-group
- how long a file is kept, and how many at a time: https://learn.microsoft.com/power-bi/developer/embedded/export-to

A true export's id is some 100 characters of base64; here it is short. Nothing happens between two looks at a
job: each look brings it one step further.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from mocks.vendor import START, Ask, Fault, Vendor, Wire, Work

WORKSPACE: Final = "f089354e-8366-4e18-aea3-4cb4a3a50b48"
"""The one workspace there is."""

SALES: Final = "cad51cfa-e740-324f-acbb-8ca43c40a2d4"
STAFF: Final = "5b218778-e7a5-4d73-8187-f10824047715"
REPORTS: Final[Mapping[str, str]] = {SALES: "Sales 2025", STAFF: "Staff costs"}
"""The reports by id, with their names."""

_DAY: Final = 24 * 3600
_FORMATS: Final = {
    name: f".{name.lower()}" for name in ("PDF", "PPTX", "PNG", "XLSX", "DOCX", "CSV", "XML", "MHTML")
}


class _RefusedError(Exception):
    """A reply that ends the work of an endpoint."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.body = {"error": {"code": code, "message": "the vendor's own words, which nobody reads"}}


@dataclass(slots=True, kw_only=True)
class Job:
    """One export as the vendor keeps it."""

    id: str
    """Its id."""

    report: str
    """The report's id."""

    format: str
    """As asked for."""

    looks: int = 0
    """How often it was asked about."""

    created: int = START
    """Seconds since 1970."""


class PowerBiMock(Vendor):
    """Reports of one workspace that can be exported.

    Args:
        faults: what goes wrong, see `Fault`.
        reports: the reports by id, with their names.
        denied: ids of reports that the token's owner may not export (403).
        failing: ids of reports whose exports fail.
        steps: looks at a job until it is done.
        forgets: looks after which a job is gone, as it is after a day; None: never.
        retry_after: seconds that each answer asks to wait; a fake has no time of its own to pass.
        base_url, key: see `Vendor`.
    """

    url: ClassVar[str] = "https://api.powerbi.com"
    json_type: ClassVar[str] = "application/json; odata.metadata=minimal"

    def __init__(
        self,
        *,
        faults: Iterable[Fault] = (),
        reports: Mapping[str, str] = REPORTS,
        denied: Iterable[str] = (),
        failing: Iterable[str] = (),
        steps: int = 3,
        forgets: int | None = None,
        retry_after: int = 0,
        base_url: str | None = None,
        key: str = "mock-token",
    ) -> None:
        """Start without any job."""
        super().__init__(faults=faults, base_url=base_url, key=key)
        self.reports, self.denied, self.failing = dict(reports), frozenset(denied), frozenset(failing)
        self.steps, self.forgets, self.retry_after = steps, forgets, retry_after
        self.jobs: dict[str, Job] = {}
        report = f"/v1.0/myorg/groups/{WORKSPACE}/reports/(?P<report>[^/]+)"
        self.route("POST", f"{report}/ExportTo", self._start)
        self.route("GET", f"{report}/exports/(?P<job>[^/]+)", self._status)

    def done(self) -> int:
        """Return how many different files lie ready."""
        with self._lock:
            ready = (job for job in self.jobs.values() if job.looks >= self.steps)
            return len({(job.report, job.format) for job in ready if job.report not in self.failing})

    def perform(self, ask: Ask, work: Work) -> Wire:
        """Check the token, then do the work."""
        try:
            self._admit(ask)
            return work(ask)
        except _RefusedError as refused:
            return self.reply(refused.status, refused.body)

    def own_headers(self, ask: Ask) -> dict[str, str]:
        """Return the headers Power BI puts on its replies."""
        return {"content-type": self.json_type, "requestid": f"request-{ask.position}"}

    # Endpoints.

    def _start(self, ask: Ask) -> Wire:
        report = self._report(ask)
        kind = _format(ask)
        job = Job(id=self.count("export-"), report=report, format=kind, created=self.now)
        self.jobs[job.id] = job
        return self._reply(202, self._json(job, "NotStarted"))

    def _status(self, ask: Ask) -> Wire:
        job = self.jobs.get(ask.parts["job"])
        if job is None or job.report != self._report(ask) or self._gone(job):
            raise _RefusedError(404, "PowerBIEntityNotFound")
        job.looks += 1
        if job.looks < self.steps:
            return self._reply(202, self._json(job, "Running"))
        return self._reply(200, self._json(job, "Failed" if job.report in self.failing else "Succeeded"))

    # Parts.

    def _admit(self, ask: Ask) -> None:
        if ask.headers.get("authorization") != f"Bearer {self.key}":
            raise _RefusedError(403, "TokenExpired")

    def _report(self, ask: Ask) -> str:
        report = ask.parts["report"]
        if report not in self.reports:
            raise _RefusedError(404, "PowerBIEntityNotFound")
        if report in self.denied:
            raise _RefusedError(403, "PowerBINotAuthorizedException")
        return report

    def _gone(self, job: Job) -> bool:
        return self.now - job.created >= _DAY or job.looks == self.forgets

    def _reply(self, status: int, body: dict[str, Any]) -> Wire:
        return self.reply(status, body, retry_after=str(self.retry_after))

    def _json(self, job: Job, status: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": job.id,
            "createdDateTime": _time(job.created),
            "lastActionDateTime": _time(self.now),
            "reportId": job.report,
            "reportName": self.reports[job.report],
            "status": status,
            "percentComplete": min(100 * job.looks // self.steps, 100),
        }
        if status == "Succeeded":
            report = f"{self.base_url}/v1.0/myorg/groups/{WORKSPACE}/reports/{job.report}"
            body["resourceLocation"] = f"{report}/exports/{job.id}/file"
            body["resourceFileExtension"] = _FORMATS[job.format]
            body["expirationTime"] = _time(job.created + _DAY)
        return body


def _format(ask: Ask) -> str:
    try:
        fields = json.loads(ask.text)
    except ValueError:
        fields = None
    kind = fields.get("format") if isinstance(fields, dict) else None
    if kind not in _FORMATS:
        raise _RefusedError(400, "InvalidRequest")
    return str(kind)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.0000000Z")
