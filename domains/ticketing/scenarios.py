"""What must happen when tickets are opened, for the command line to play and the tests to check."""

from collections.abc import Mapping
from typing import Any, Final

from domains.scenario import Ask, Forced, Scenario, Turn
from orchestration.reasons import Reason

VENDOR: Final = "mocks.github:GitHubMock"
"""The fake that answers in these scenarios."""

SAMPLE: Final = Ask(
    "create_ticket",
    {"title": "Mug arrived broken", "body": "The handle came off.", "reference": "order-7"},
)
"""A call that opens a ticket if nothing is forced."""

_CREATE: Final = "POST /repos/acme/support/issues"


def _refused(status: int, message: str, **more: Any) -> Forced:
    """Refuse to create an issue. The message is what GitHub says; nobody is to read it."""
    headers = more.pop("headers", {})
    end = {"documentation_url": "https://docs.github.com/rest/issues/issues", "status": str(status)}
    return Forced(at=_CREATE, status=status, headers=headers, body={"message": message, **more, **end})


_SECONDARY: Final = _refused(
    403,
    "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
    headers={"retry-after": "30"},
)
_NO_PERMISSION: Final = _refused(403, "Resource not accessible by personal access token")
_FIELD: Final = _refused(
    422,
    "Validation Failed",
    errors=[{"resource": "Issue", "field": "title", "code": "invalid", "value": "Mug"}],
)
_SPAM: Final = _refused(
    422,
    "Validation Failed",
    errors=[{"resource": "Issue", "field": "body", "code": "custom", "message": "body was flagged as spam"}],
)
_PAGE: Final = Forced(
    at=_CREATE,
    status=502,
    headers={"content-type": "text/html"},
    body="<!DOCTYPE html><html><head><title>Unicorn! &middot; GitHub</title></head></html>",
)
_LOST: Final = Forced(kind="ReadTimeout", at=_CREATE, when="after")

FORCED: Final[Mapping[Reason, tuple[Mapping[str, Any], tuple[Forced, ...]]]] = {
    Reason.COMPLETED: ({}, ()),
    Reason.TRANSIENT: ({}, (_SECONDARY,)),
    Reason.FATAL: ({"without_issues": ("acme/support",)}, ()),
    Reason.POLICY_BLOCK: ({"archived": ("acme/support",)}, ()),
}
"""Reason -> settings of the fake and forced answers that make ``SAMPLE`` end with it."""

FIRST: Final = "The ticket is open. Its number is 1: https://github.com/acme/support/issues/1"
SECOND: Final = "The ticket is open. Its number is 2: https://github.com/acme/support/issues/2"
LATER: Final = "The ticket desk is busy right now. I can open the ticket for you later."
BROKEN: Final = "My mug arrived broken, please open a ticket for order 7."
STOPPED: Final = ("agent", "tools", "finalize")
RETRIED: Final = ("agent", "tools", "agent", "tools", "finalize")
SAVED: Final = "I have opened a ticket for you."
"""What the model would add if it were asked once more."""


def _ends(reason: str, rule: str, final: str) -> Turn:
    """One call, one stop."""
    return Turn(
        user=BROKEN,
        script=((SAMPLE,),),
        narration=SAVED,
        path=STOPPED,
        reasons=(reason,),
        rules=(rule,),
        stopped_by=reason,
        final=final,
    )


def _second_try(rule: str, again: Ask = SAMPLE, first: Ask = SAMPLE, number: str = FIRST) -> Turn:
    """One call that can still pass, and one that does."""
    return Turn(
        user=BROKEN,
        script=((first,), (again,)),
        narration=SAVED,
        path=RETRIED,
        reasons=("transient", "completed"),
        rules=(rule, "ticketing/filed"),
        stopped_by="completed",
        final=number,
    )


SCENARIOS: Final[tuple[Scenario, ...]] = (
    Scenario(
        id="ticketing/success",
        about="The ticket is opened and the run ends with its number.",
        turns=(_ends("completed", "ticketing/filed", FIRST),),
    ),
    Scenario(
        id="ticketing/secondary-limit-then-success",
        about="A rate limit dressed as a 403 is no refusal: the model comes back.",
        forced={"ticketing": (_SECONDARY,)},
        turns=(_second_try("ticketing/asked-to-wait"),),
    ),
    Scenario(
        id="ticketing/invalid-field-then-success",
        about="A detail is refused; the model words it anew.",
        forced={"ticketing": (_FIELD,)},
        turns=(
            _second_try(
                "ticketing/field-invalid",
                Ask("create_ticket", {"title": "Mug arrived broken", "reference": "order-7"}),
                Ask("create_ticket", {"title": "Mug", "reference": "order-7"}),
            ),
        ),
    ),
    Scenario(
        id="ticketing/long-title-then-success",
        about="A title past the limit is not sent; the model shortens it.",
        turns=(
            _second_try(
                "ticketing/title-too-long", first=Ask("create_ticket", {"title": "The mug is broken. " * 20})
            ),
        ),
    ),
    Scenario(
        id="ticketing/issues-disabled",
        about="The repository takes no issues: nothing the model could send changes that.",
        vendors={"ticketing": {"without_issues": ("acme/support",)}},
        turns=(
            _ends(
                "fatal",
                "ticketing/no-tickets-here",
                "The ticket desk does not take tickets. No ticket was opened.",
            ),
        ),
    ),
    Scenario(
        id="ticketing/hidden-repository",
        about="A private repository hides as a 404; its name is configuration.",
        vendors={"ticketing": {"repositories": ()}},
        turns=(
            _ends(
                "fatal",
                "ticketing/desk-not-found",
                "The ticket desk cannot be found. Somebody has to look at the setup. No ticket was opened.",
            ),
        ),
    ),
    Scenario(
        id="ticketing/no-permission",
        about="A valid token without the permission: somebody's rule, and the end.",
        forced={"ticketing": (_NO_PERMISSION,)},
        turns=(
            _ends(
                "policy_block",
                "ticketing/not-permitted",
                "Our account is not allowed to open tickets there. No ticket was opened.",
            ),
        ),
    ),
    Scenario(
        id="ticketing/flagged",
        about="A filter against abuse refuses the text; nobody words around it.",
        forced={"ticketing": (_SPAM,)},
        turns=(
            _ends(
                "policy_block",
                "ticketing/spam",
                "The ticket service does not accept this ticket. No ticket was opened.",
            ),
        ),
    ),
    Scenario(
        id="ticketing/answer-lost",
        about="The answer is lost after the work was done: the list shows the one ticket.",
        forced={"ticketing": (_LOST,)},
        turns=(_ends("completed", "ticketing/on-file", FIRST),),
    ),
    Scenario(
        id="ticketing/gateway-page-then-success",
        about="A page where JSON was due proves nothing; the list shows no ticket, so the model comes back.",
        forced={"ticketing": (_PAGE,)},
        turns=(_second_try("ticketing/page"),),
    ),
    Scenario(
        id="ticketing/two-at-once",
        about="Two calls in one turn, one of which lacks its title: the run opens one ticket each.",
        turns=(
            Turn(
                user="Open two tickets: the mug of order 7 is broken, and something about order 8.",
                script=(
                    (SAMPLE, Ask("create_ticket", {"title": " ", "reference": "order-8"})),
                    (Ask("create_ticket", {"title": "Wrong colour", "reference": "order-8"}),),
                ),
                narration=SAVED,
                path=RETRIED,
                reasons=("completed", "transient", "completed"),
                rules=("ticketing/filed", "ticketing/no-title", "ticketing/filed"),
                stopped_by="completed",
                final=f"{FIRST}\n\n{SECOND}",
            ),
        ),
    ),
    Scenario(
        id="ticketing/second-turn",
        about="The next thing the user says is answered by the model, not by the last turn's stop.",
        turns=(
            _ends("completed", "ticketing/filed", FIRST),
            Turn(
                user="Thank you!",
                script=("You are welcome.",),
                narration=SAVED,
                path=("agent",),
                final="You are welcome.",
            ),
        ),
    ),
    Scenario(
        id="ticketing/on-file",
        about="The same reference in other words: the ticket is there already, and stays the only one.",
        turns=(
            _ends("completed", "ticketing/filed", FIRST),
            Turn(
                user="Did you open it? Please open a ticket for order 7!",
                script=((Ask("create_ticket", {"title": "Broken mug (order 7)", "reference": "Order-7"}),),),
                narration=SAVED,
                path=STOPPED,
                reasons=("completed",),
                rules=("ticketing/on-file",),
                stopped_by="completed",
                final=FIRST,
            ),
        ),
    ),
    Scenario(
        id="ticketing/hour-used-up",
        about="The hour's requests are used up: a 403 that only its headers tell from a refusal.",
        vendors={"ticketing": {"limit": 0}},
        turns=(
            Turn(
                user=BROKEN,
                script=((SAMPLE,), LATER),
                narration=SAVED,
                path=("agent", "tools", "agent"),
                reasons=("transient",),
                rules=("ticketing/hour-used-up",),
                final=LATER,
            ),
        ),
    ),
    Scenario(
        id="ticketing/limit-stays",
        about="The limit stays: after three attempts the run ends with what the tool says.",
        forced={"ticketing": (_SECONDARY,) * 3},
        turns=(
            Turn(
                user=BROKEN,
                script=((SAMPLE,), (SAMPLE,), (SAMPLE,)),
                narration=SAVED,
                path=("agent", "tools", "agent", "tools", "agent", "tools", "finalize"),
                reasons=("transient",) * 3,
                rules=("ticketing/asked-to-wait",) * 3,
                stopped_by="attempts_exhausted",
                final="The ticket service gets too many requests from us at the moment. Waiting would help. "
                "No ticket was opened. The wait is about 30 seconds.",
            ),
        ),
    ),
)
"""The conversations, each with its expected course."""
