"""``export_document``: start an export, watch it, and say where it stands.

An export is a job at the vendor. One call starts it and looks at it a few times; how far it is goes to the
screen (``Progress``), never into the text. A job that is not done by then is no failure: the outcome is
completed and pending, names the job, and the next call with that name goes on watching. Nothing is kept in
between, so a restart, or another process, goes on as well.

What is made is a file for the customer, so a file that is ready is ``applied``: a run that made two says so
of both. Until then the effect is none: a job that got lost made nothing that anybody could fetch.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

import httpx
from langchain_core.tools import BaseTool

from domains.export.rules import BOOK
from domains.mapping import Call, Flow, Progress, Reply, proven
from domains.tool import as_tool, connect
from orchestration.outcomes import Outcome, printable
from orchestration.reasons import Effect, Reason

LOOKS: Final = 5
"""How often one call looks at a job."""

PAUSE_S: Final = 2.0
"""Seconds between two looks, where the vendor does not say."""

LONGEST_PAUSE_S: Final = 10.0
"""Seconds: a tool call is not to hold a run for longer than it takes to say so."""

LONGEST_TITLE: Final = 120
"""Characters of a document's name that people read."""

FORMATS: Final = frozenset({"PDF", "PPTX", "PNG", "XLSX", "DOCX", "CSV", "XML"})

_API: Final = "https://api.powerbi.com"
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_JOB: Final = re.compile(r"[A-Za-z0-9+/=_-]{1,512}")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*Z")
_LATER: Final = frozenset({500, 502, 503, 504})
"""Statuses of a look that says nothing of the job."""


def tools(
    *,
    client: httpx.Client | None = None,
    async_client: httpx.AsyncClient | None = None,
    workspace: str = "f089354e-8366-4e18-aea3-4cb4a3a50b48",
) -> list[BaseTool]:
    """Return the tool ``export_document``, bound to one workspace.

    Args:
        client: Sends a sync run's requests. With neither client Power BI itself is used, with the token in
            ``POWER_BI_TOKEN``.
        async_client: Sends an async run's requests.
        workspace: The id of the workspace whose reports are the documents. Configuration.

    Raises:
        ValueError: The workspace's id is of another form.
        RuntimeError: No client is given and no token is set.
    """
    if not _ID.fullmatch(workspace):
        raise ValueError(f"workspace must be an id of letters, digits and hyphens, not {workspace!r}")
    if client is None and async_client is None:
        client, async_client = connect(_API, "POWER_BI_TOKEN", _headers)

    flow = export_flow(workspace)
    return [as_tool(flow, client=client, async_client=async_client)]


def export_flow(workspace: str) -> Callable[..., Flow]:
    """Return the flow for one workspace."""

    def export_document(document_id: str, format: str = "pdf", job: str = "") -> Flow:  # noqa: A002
        """Export a document as a file. If the answer names a job, call again with it to go on waiting.

        Args:
            document_id: The document's identifier.
            format: pdf, pptx, png, xlsx, docx, csv or xml.
            job: The job that an earlier answer named; empty to start one.
        """
        about = json.dumps(["export", workspace, document_id, format.upper()])
        key = sha256(about.encode("utf-8", "replace")).hexdigest()[:32]
        outcome = yield from _export(workspace, document_id.strip(), format.strip().upper(), job.strip())
        return replace(outcome, key=key)

    return export_document


def _headers(token: str) -> Mapping[str, str]:
    return {"authorization": f"Bearer {token}", "accept": "application/json"}


def _export(workspace: str, document: str, kind: str, job: str) -> Flow:
    if not _ID.fullmatch(document):
        return BOOK.pick("export/no-document", Reply())
    if kind not in FORMATS:
        return BOOK.pick("export/unknown-format", Reply())
    path = f"/v1.0/myorg/groups/{workspace}/reports/{document}"
    if job:
        # What is no job's name was never one: it is not sent, and is answered like one that is gone.
        if not _JOB.fullmatch(job):
            return BOOK.pick("export/expired", Reply())
        return (yield from _Watch(path, document, kind, job).look(None, Reply()))
    reply = yield Call("POST", f"{path}/ExportTo", json={"format": kind})
    outcome, started = BOOK.classify(reply), reply.first("id")
    taken = outcome.rule in {"export/running", "export/ready"}
    if not taken or started is None or not _JOB.fullmatch(started):
        return outcome
    return (yield from _Watch(path, document, kind, started).look(outcome, reply))


@dataclass(frozen=True, slots=True)
class _Watch:
    """One job, and how it is looked at."""

    path: str
    document: str
    kind: str
    job: str

    def look(self, started: Outcome | None, last: Reply) -> Flow:
        """Look at the job until it has ended, or for ``LOOKS`` times.

        Args:
            started: What the answer that started it says; None if an earlier call did.
            last: That answer.
        """
        percent = self._percent(last)
        wait = 0.0 if started is None else _pause(started)
        outcome, lost = BOOK.pick("export/under-way", last), 0
        for _ in range(LOOKS):
            told = Progress(self.document, f"The export as {self.kind} is being made.", percent)
            path = f"{self.path}/exports/{quote(self.job, safe='=')}"
            reply = yield Call("GET", path, after_s=wait, progress=told)
            outcome = BOOK.classify(reply)
            if outcome.rule == "export/ready":
                return self._ready(outcome, reply)
            if reply.status in {httpx.codes.NOT_FOUND, httpx.codes.GONE}:
                return BOOK.pick("export/expired", reply, job=self.job)
            if outcome.rule == "export/running":
                percent = self._percent(reply)
            elif _says_nothing(reply, outcome):
                lost += 1
            else:
                return outcome
            # The first lost look is made up for at once.
            wait = 0.0 if lost == 1 and outcome.rule != "export/running" else _pause(outcome)
        if outcome.rule != "export/running":  # the looks were lost, not the job
            return replace(outcome, content=f"{outcome.content} {self._name()}")
        facts = {"job": self.job} if percent is None else {"job": self.job, "progress": percent}
        outcome = BOOK.pick("export/under-way", reply, **facts)
        return replace(outcome, content=f"{outcome.content} {self._name()}", pending=True)

    def _name(self) -> str:
        return f"It goes on as job {self.job}; another look at that job would show more."

    @staticmethod
    def _percent(reply: Reply) -> int | None:
        value = next(iter(reply.found["percentComplete"]), None)
        return value if type(value) is int and 0 <= value <= 100 else None  # noqa: PLR2004 - per cent

    def _ready(self, outcome: Outcome, reply: Reply) -> Outcome:
        """Name the file, and until when it is kept."""
        title = " ".join(printable(reply.first("reportName") or "").split())[:LONGEST_TITLE]
        until = _TIME.fullmatch(reply.first("expirationTime") or "")
        named = f' "{title}"' if title else ""
        kept = f" The file is kept until {until[1]} {until[2]} UTC." if until else ""
        facts: dict[str, Any] = {"job": self.job, "extension": reply.first("resourceFileExtension")}
        evidence = {**outcome.evidence, **{name: fact for name, fact in facts.items() if fact}}
        text = f"The export{named} is ready, as {self.kind}.{kept}"
        return replace(outcome, content=text, effect=Effect.APPLIED, evidence=evidence)


def _pause(outcome: Outcome) -> float:
    """Return the seconds until the next look: the vendor's, within reason."""
    named = outcome.retry_after_s
    return PAUSE_S if named is None else min(float(named), LONGEST_PAUSE_S)


def _says_nothing(reply: Reply, outcome: Outcome) -> bool:
    """Whether an answer is lost or unreadable, so that it says nothing of the job."""
    if reply.status is None:  # a look that cannot even be sent will not be, the next time
        return outcome.reason is Reason.TRANSIENT or proven(reply) is Effect.UNKNOWN
    lost = reply.status in _LATER and outcome.retry_after_s is None
    return lost or (reply.status < 300 and reply.body is None)  # noqa: PLR2004 - HTTP's own class
