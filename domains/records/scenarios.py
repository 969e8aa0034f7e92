"""What must happen when records are written, for the command line to play and the tests to check."""

from collections.abc import Mapping
from typing import Any, Final

from domains.scenario import Ask, Forced, Scenario, Turn
from orchestration.reasons import Reason

VENDOR: Final = "mocks.salesforce:SalesforceMock"
"""The fake that answers in these scenarios."""

SAMPLE: Final = Ask("write_record", {"record_id": "ACME-7", "fields": {"Name": "Acme", "Phone": "+49 30 7"}})
"""A call that writes a record if nothing is forced."""

OTHER: Final = Ask("write_record", {"record_id": "ACME-8", "fields": {"Name": "Acme Two"}})

_THERE: Final = {"ACME-7": {"Name": "Acme", "Phone": "+49 30 1"}}
"""The record as it is before, where there is one."""

_WRITE: Final = "P* */sobjects/Account*"


def _refused(status: int, code: str, message: str = "the vendor's own words", *, at: str = _WRITE) -> Forced:
    """Refuse as Salesforce does. Its prose stands for all of it: nobody reads it."""
    return Forced(at=at, status=status, body=[{"message": message, "errorCode": code, "fields": []}])


_LOCKED_ROW: Final = _refused(400, "UNABLE_TO_LOCK_ROW")
_AT_ONCE: Final = _refused(403, "REQUEST_LIMIT_EXCEEDED", "ConcurrentPerOrgLongTxn Limit exceeded.")
_SESSION: Final = _refused(401, "INVALID_SESSION_ID", at="*")
_LOST: Final = Forced(kind="ReadTimeout", at=_WRITE, when="after")

FORCED: Final[Mapping[Reason, tuple[Mapping[str, Any], tuple[Forced, ...]]]] = {
    Reason.COMPLETED: ({}, ()),
    Reason.TRANSIENT: ({}, (_LOCKED_ROW,)),
    Reason.FATAL: ({}, (_SESSION,)),
    Reason.POLICY_BLOCK: ({"readonly": True}, ()),
}
"""Reason -> settings of the fake and forced answers that make ``SAMPLE`` end with it."""

WRITTEN: Final = "The record was written. Its number is ACME-7."
WRITTEN_TOO: Final = "The record was written. Its number is ACME-8."
AS_ASKED: Final = "The record is already as asked. Its number is ACME-7."
WANTED: Final = "Please put down Acme with the phone number +49 30 7, as ACME-7."
STOPPED: Final = ("agent", "tools", "finalize")
RETRIED: Final = ("agent", "tools", "agent", "tools", "finalize")
SAVED: Final = "I have put that down."
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


def _second_try(rule: str, first: Ask = SAMPLE, last: str = "records/created") -> Turn:
    """One call that can still pass, and one that does."""
    return Turn(
        user=WANTED,
        script=((first,), (SAMPLE,)),
        narration=SAVED,
        path=RETRIED,
        reasons=("transient", "completed"),
        rules=(rule, last),
        stopped_by="completed",
        final=WRITTEN,
    )


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        id="records/created",
        about="A new record is written, and the run ends with its number.",
        turns=(_ends("completed", "records/created", WRITTEN),),
    ),
    Scenario(
        id="records/changed",
        about="A record that is there is changed; its 204 says nothing, and another look proves it.",
        vendors={"records": {"records": _THERE}},
        turns=(_ends("completed", "records/changed", WRITTEN),),
    ),
    Scenario(
        id="records/already-as-asked",
        about="The same write was done before: nothing is sent, and the customer hears that it is so.",
        turns=(
            _ends("completed", "records/created", WRITTEN),
            _ends("completed", "records/as-asked", AS_ASKED),
        ),
    ),
    Scenario(
        id="records/stale-then-changed",
        about="Somebody else changes the record between our look and our write: theirs is not written over.",
        vendors={"records": {"records": _THERE, "meddled": ("ACME-7",)}},
        turns=(_second_try("records/stale", last="records/changed"),),
    ),
    Scenario(
        id="records/locked-row-then-created",
        about="A lock of a few seconds: the model comes back.",
        forced={"records": (_LOCKED_ROW,)},
        turns=(_second_try("records/locked-row"),),
    ),
    Scenario(
        id="records/value-then-created",
        about="A validation rule refuses a value; the model corrects it.",
        turns=(
            _second_try(
                "records/value",
                Ask("write_record", {"record_id": "ACME-7", "fields": {"Name": "Acme", "Phone": "seven"}}),
            ),
        ),
    ),
    Scenario(
        id="records/too-many-at-once",
        about="The code of the day's limit, for too many requests at once: only the message tells.",
        forced={"records": (_AT_ONCE,)},
        turns=(_second_try("records/too-many-at-once"),),
    ),
    Scenario(
        id="records/quota",
        about="The day's requests are used up: a plan's rule, not a moment.",
        vendors={"records": {"spent": True}},
        turns=(
            _ends(
                "policy_block",
                "records/quota",
                "What our plan with the record service allows is used up. Nothing was written.",
            ),
        ),
    ),
    Scenario(
        id="records/locked",
        about="The record waits for somebody's approval: the end.",
        vendors={"records": {"records": _THERE, "locked": ("ACME-7",)}},
        turns=(
            _ends(
                "policy_block",
                "records/locked",
                "This record is locked, since somebody has to approve it first. Nothing was written.",
            ),
        ),
    ),
    Scenario(
        id="records/session-expired",
        about="An expired session: nothing that the model holds renews it.",
        forced={"records": (_SESSION,)},
        turns=(
            _ends(
                "fatal",
                "records/session",
                "The record service does not accept our access. Its setup has to be looked at. "
                "Nothing was written.",
            ),
        ),
    ),
    Scenario(
        id="records/answer-lost",
        about="The answer is lost after the work was done: another look proves it, and none is made twice.",
        forced={"records": (_LOST,)},
        turns=(_ends("completed", "records/changed", WRITTEN),),
    ),
    Scenario(
        id="records/two-at-once",
        about="Two records in one turn, one of which lacks its number: the run ends once both are written.",
        turns=(
            Turn(
                user="Please put down Acme as ACME-7, and Acme Two as ACME-8.",
                script=(
                    (SAMPLE, Ask("write_record", {"record_id": " ", "fields": {"Name": "Acme Two"}})),
                    (OTHER,),
                ),
                narration=SAVED,
                path=RETRIED,
                reasons=("completed", "transient", "completed"),
                rules=("records/created", "records/no-number", "records/created"),
                stopped_by="completed",
                final=f"{WRITTEN}\n\n{WRITTEN_TOO}",
            ),
        ),
    ),
    Scenario(
        id="records/second-turn",
        about="The next thing the user says is answered by the model, not by the last turn's stop.",
        turns=(
            _ends("completed", "records/created", WRITTEN),
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
