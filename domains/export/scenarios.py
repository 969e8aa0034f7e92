"""What must happen when documents are exported, for the command line to play and the tests to check."""

from collections.abc import Mapping
from typing import Any, Final

from domains.scenario import Ask, Forced, Scenario, Turn
from orchestration.reasons import Reason

VENDOR: Final = "mocks.power_bi:PowerBiMock"
"""The fake that answers in these scenarios."""

SALES: Final = "cad51cfa-e740-324f-acbb-8ca43c40a2d4"
STAFF: Final = "5b218778-e7a5-4d73-8187-f10824047715"

SAMPLE: Final = Ask("export_document", {"document_id": SALES, "format": "pdf"})
"""A call that ends with a file if nothing is forced."""

SLIDES: Final = Ask("export_document", {"document_id": STAFF, "format": "pptx"})
AGAIN: Final = Ask("export_document", {"document_id": SALES, "format": "pdf", "job": "export-1"})
"""The call that goes on watching what ``SAMPLE`` started."""

_START: Final = "POST */ExportTo"
_LOOK: Final = "GET */exports/*"


def _refused(status: int, code: str, *, at: str = _START, headers: Mapping[str, str] | None = None) -> Forced:
    """Refuse as Power BI does. Its prose stands for all of it: nobody reads it."""
    body = {"error": {"code": code, "message": "the vendor's own words"}}
    return Forced(at=at, status=status, headers=headers or {}, body=body)


_BUSY: Final = _refused(429, "TooManyRequests", headers={"retry-after": "20"})
_EXPIRED_TOKEN: Final = _refused(403, "TokenExpired")

FORCED: Final[Mapping[Reason, tuple[Mapping[str, Any], tuple[Forced, ...]]]] = {
    Reason.COMPLETED: ({}, ()),
    Reason.TRANSIENT: ({}, (_BUSY,)),
    Reason.FATAL: ({}, (_EXPIRED_TOKEN,)),
    Reason.POLICY_BLOCK: ({"denied": (SALES,)}, ()),
}
"""Reason -> settings of the fake and forced answers that make ``SAMPLE`` end with it."""

PDF: Final = 'The export "Sales 2025" is ready, as PDF. The file is kept until 2026-01-02 00:00 UTC.'
PPTX: Final = 'The export "Staff costs" is ready, as PPTX. The file is kept until 2026-01-02 00:00 UTC.'
EXPIRED: Final = (
    "This export is no longer there: files are kept for a day. The customer can ask for a new one."
)
UNDER_WAY: Final = (
    "The export is still being made. It goes on as job export-1; another look at that job would show more."
)
WANTED: Final = "Please send me the sales report as a PDF."
STOPPED: Final = ("agent", "tools", "finalize")
RETRIED: Final = ("agent", "tools", "agent", "tools", "finalize")
SAVED: Final = "Your report has been exported."
"""What the model would say if it were asked once more."""


def _ends(reason: str, rule: str, final: str) -> Turn:
    """One call, one stop."""
    return Turn(
        user=WANTED,
        script=((SAMPLE,),),
        narration=SAVED,
        path=STOPPED,
        reasons=(reason,),
        rules=(rule,),
        stopped_by=reason,
        final=final,
    )


def _second_try(
    first: tuple[str, str], *, asks: tuple[Ask, Ask] = (SAMPLE, SAMPLE), last: tuple[str, str] | None = None
) -> Turn:
    """One call that does not end the run, and one that does."""
    reason, rule = last or ("completed", "export/ready")
    return Turn(
        user=WANTED,
        script=((asks[0],), (asks[1],)),
        narration=SAVED,
        path=RETRIED,
        reasons=(first[0], reason),
        rules=(first[1], rule),
        stopped_by=reason,
        final=PDF if last is None else EXPIRED,
    )


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        id="export/ready",
        about="The job is started, watched and done within one call: the customer reads what there is.",
        turns=(_ends("completed", "export/ready", PDF),),
    ),
    Scenario(
        id="export/long",
        about="A job that outlasts one call is completed and no answer yet: the next call goes on with it.",
        vendors={"export": {"steps": 8}},
        turns=(_second_try(("completed", "export/under-way"), asks=(SAMPLE, AGAIN)),),
    ),
    Scenario(
        id="export/expired",
        about="A job that is gone at the next look ends the run: no look brings it back.",
        vendors={"export": {"steps": 8, "forgets": 5}},
        turns=(
            _second_try(
                ("completed", "export/under-way"), asks=(SAMPLE, AGAIN), last=("fatal", "export/expired")
            ),
        ),
    ),
    Scenario(
        id="export/never-done",
        about="A job that does not end: after three looks of the model's the customer reads where it stands.",
        vendors={"export": {"steps": 99}},
        turns=(
            Turn(
                user=WANTED,
                script=((SAMPLE,), (AGAIN,), (AGAIN,)),
                narration=SAVED,
                path=("agent", "tools", "agent", "tools", "agent", "tools", "finalize"),
                reasons=("completed",) * 3,
                rules=("export/under-way",) * 3,
                stopped_by="attempts_exhausted",
                final=UNDER_WAY,
            ),
        ),
    ),
    Scenario(
        id="export/busy-then-ready",
        about="Too many exports at once: the model comes back.",
        forced={"export": (_BUSY,)},
        turns=(_second_try(("transient", "export/rate")),),
    ),
    Scenario(
        id="export/wrong-format-then-ready",
        about="A format that does not exist is not sent; the model chooses another.",
        turns=(
            _second_try(
                ("transient", "export/unknown-format"),
                asks=(Ask("export_document", {"document_id": SALES, "format": "word"}), SAMPLE),
            ),
        ),
    ),
    Scenario(
        id="export/look-lost",
        about="One look is lost: it is made up for, and the model hears nothing of it.",
        forced={"export": (Forced(at=_LOOK, kind="ReadTimeout"),)},
        turns=(_ends("completed", "export/ready", PDF),),
    ),
    Scenario(
        id="export/not-permitted",
        about="The token is good and its owner may not export this: a rule refused.",
        vendors={"export": {"denied": (SALES,)}},
        turns=(_ends("policy_block", "export/not-permitted", "We are not permitted to export this."),),
    ),
    Scenario(
        id="export/token-expired",
        about="An expired token dressed as a 403: no rule, but a setup that somebody has to mend.",
        forced={"export": (_EXPIRED_TOKEN,)},
        turns=(
            _ends(
                "fatal",
                "export/token",
                "The export service does not accept our access. Its setup has to be looked at.",
            ),
        ),
    ),
    Scenario(
        id="export/two-at-once",
        about="Two exports in one turn, one of which names no document: the customer reads of both files.",
        turns=(
            Turn(
                user="Please send me the sales report as a PDF and the staff costs as slides.",
                script=((SAMPLE, Ask("export_document", {"document_id": "staff costs"})), (SLIDES,)),
                narration=SAVED,
                path=RETRIED,
                reasons=("completed", "transient", "completed"),
                rules=("export/ready", "export/no-document", "export/ready"),
                stopped_by="completed",
                final=f"{PDF}\n\n{PPTX}",
            ),
        ),
    ),
    Scenario(
        id="export/second-turn",
        about="The next thing the user says is answered by the model, not by the last turn's stop.",
        turns=(
            _ends("completed", "export/ready", PDF),
            Turn(
                user="Thank you!",
                script=("You are welcome.",),
                narration=SAVED,
                path=("agent",),
                final="You are welcome.",
            ),
        ),
    ),
)
"""The conversations, each with its expected course."""
