"""What Power BI's answers to an export mean.

An export is a job: it is started with a 202, and asked about until its ``status`` says how it ended. The status
in the body decides, since a job that failed is a 200 or a 202 as well. Refusals name a code, and an expired
token comes as a 403.

Sources: https://learn.microsoft.com/rest/api/power-bi/reports/export-to-file-in-group,
https://learn.microsoft.com/rest/api/power-bi/reports/get-export-to-file-status-in-group,
https://learn.microsoft.com/power-bi/developer/embedded/export-to
"""

from typing import Final

from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Rule, RuleBook, When, present
from orchestration.reasons import Reason

START: Final = "https://learn.microsoft.com/rest/api/power-bi/reports/export-to-file-in-group"
STATUS: Final = "https://learn.microsoft.com/rest/api/power-bi/reports/get-export-to-file-status-in-group"
GUIDE: Final = "https://learn.microsoft.com/power-bi/developer/embedded/export-to"
TROUBLE: Final = "https://learn.microsoft.com/power-bi/developer/embedded/embedded-troubleshoot"


def an_object(value: object) -> bool:
    """Match a body that is one JSON object: paths would look into each item of a list."""
    return isinstance(value, dict)


BOOK: Final = RuleBook(
    domain="export",
    codes=("error.code", "error.pbi.error.code", "status"),
    request_ids=("requestid", "x-request-id"),
    # Whatever is lost can be asked for anew. Of a file that is ready the flow says that it is there.
    writes=False,
    rules=(
        # The proof of success, and the other states of a job.
        Rule(
            id="export/ready",
            when=When(
                status=200,
                body={
                    "": an_object,
                    "id": present,
                    "status": "Succeeded",
                    "resourceLocation": present,
                    "error": None,
                },
            ),
            reason=Reason.COMPLETED,
            say="The export is ready.",
            why="The job says that it succeeded, and where its file lies.",
            source=STATUS,
        ),
        Rule(
            id="export/running",
            when=When(status=(200, 202), body={"status": {"NotStarted", "Running"}}),
            reason=Reason.TRANSIENT,
            say="The export is still being made.",
            why="Nothing is proven by a job that runs. The flow asks on, and says so if it has to stop asking.",
            source=STATUS,
        ),
        Rule(
            id="export/failed",
            when=When(status=(200, 202), body={"status": "Failed"}),
            reason=Reason.TRANSIENT,
            say="The export did not work out at the service. A new one may.",
            why="The job names no cause; renderers fail under load and on single pages, and a new job is free.",
            source=STATUS,
        ),
        # Who may export, and what.
        Rule(
            id="export/token",
            when=When(status=(401, 403), body={"error.code": "TokenExpired"}),
            reason=Reason.FATAL,
            say="The export service does not accept our access. Its setup has to be looked at.",
            why="An expired token comes as a 403; no argument renews it.",
            source=TROUBLE,
        ),
        Rule(
            id="export/not-permitted",
            when=When(status=(401, 403), body={"error.code": "PowerBINotAuthorizedException"}),
            reason=Reason.POLICY_BLOCK,
            say="We are not permitted to export this.",
            why="The token is good, and its owner may not do this in the workspace.",
            source=TROUBLE,
        ),
        Rule(
            id="export/application",
            when=When(status=403, phrases=("api is not accessible for application",)),
            reason=Reason.POLICY_BLOCK,
            say="We are not permitted to use the export service.",
            why="The organisation's settings let no application in, or not this one.",
            source="https://learn.microsoft.com/power-bi/developer/embedded/embed-service-principal",
        ),
        Rule(
            id="export/credentials",
            when=When(status=401),
            reason=Reason.FATAL,
            say="The export service does not accept our access. Its setup has to be looked at.",
            why="The token is missing or wrong; the model holds none.",
            source=TROUBLE,
        ),
        # What other arguments change, and what a moment does.
        Rule(
            id="export/unknown-document",
            when=When(status=404, body={"error.code": "PowerBIEntityNotFound"}),
            reason=Reason.TRANSIENT,
            say="There is no such document. Asking the customer which one is meant would help.",
            why="The document is the model's argument. (Where a job is asked about, the flow says what it means.)",
            source=START,
        ),
        Rule(
            id="export/details",
            when=When(status=400, body={"error.code": {"InvalidRequest", "BadRequest"}}),
            reason=Reason.TRANSIENT,
            say="The export service does not accept these details. Another format would help.",
            why="Not every document can be had in every format, and the model chooses it.",
            source=f"{GUIDE}#considerations-and-limitations",
        ),
        Rule(
            id="export/rate",
            when=When(status=429),
            reason=Reason.TRANSIENT,
            say="The export service has too much to do at the moment. Waiting a little would help.",
            why="A capacity makes a few exports at a time and takes a few requests a minute.",
            source=f"{GUIDE}#concurrent-requests",
            retry_after_s=30,
        ),
        *INFRASTRUCTURE,
    ),
    picked=(
        Rule(
            id="export/under-way",
            reason=Reason.COMPLETED,
            say="The export is still being made.",
            why="The job was taken and is at work: what was asked is under way, and no answer yet. The flow marks it "
            "as pending, so that no run ends with it.",
            source=f"{GUIDE}#polling",
        ),
        Rule(
            id="export/expired",
            reason=Reason.FATAL,
            say="This export is no longer there: files are kept for a day. The customer can ask for a new one.",
            why="A job that was started and cannot be found has expired; no look at it brings it back.",
            source=f"{GUIDE}#polling",
        ),
        Rule(
            id="export/no-document",
            reason=Reason.TRANSIENT,
            say="It is not said which document is meant. Its identifier, of letters, digits and hyphens, would help.",
            why="The model can name one. Nothing was sent.",
            source=START,
        ),
        Rule(
            id="export/unknown-format",
            reason=Reason.TRANSIENT,
            say="There is no such format. PDF, PPTX, PNG, XLSX, DOCX, CSV and XML can be had.",
            why="The model can choose another. Nothing was sent.",
            source=START,
        ),
    ),
)
"""The table."""
