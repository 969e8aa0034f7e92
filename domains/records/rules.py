"""What Salesforce's answers to reading and writing a record mean.

Errors are a JSON list of objects, each with an ``errorCode``: the code decides, then the HTTP status. The code of
the daily limit is also that of too many long requests at once; only the message tells them apart. A change that
was saved is a 204 without a word, so the proof of it is another look.

Sources: https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/errorcodes.htm,
https://developer.salesforce.com/docs/atlas.en-us.api.meta/api/sforce_api_calls_concepts_core_data_objects.htm,
https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/intro_rest_conditional_requests.htm
"""

import re
from typing import Any, Final

from domains.infrastructure import INFRASTRUCTURE
from domains.mapping import Rule, RuleBook, When
from orchestration.reasons import Effect, Reason

_REST: Final = "https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/"
ERRORS: Final = f"{_REST}errorcodes.htm"
CONDITIONS: Final = f"{_REST}intro_rest_conditional_requests.htm"
BY_EXTERNAL_ID: Final = f"{_REST}resources_sobject_upsert.htm"
ROWS: Final = f"{_REST}resources_sobject_retrieve.htm"
CODES: Final = (
    "https://developer.salesforce.com/docs/atlas.en-us.api.meta/api/"
    "sforce_api_calls_concepts_core_data_objects.htm"
)
LIMITS: Final = (
    "https://developer.salesforce.com/docs/atlas.en-us.salesforce_app_limits_cheatsheet.meta/"
    "salesforce_app_limits_cheatsheet/salesforce_app_limits_platform_api.htm"
)

CODE: Final = "errorCode|errors.errorCode|errors.statusCode"
"""Where errors say their name: in the list itself, or beside ``success: false``."""


def an_id(value: object) -> bool:
    """Match a record's own id: 15 or 18 letters and digits."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9]{15}(?:[A-Za-z0-9]{3})?", value) is not None


def an_object(value: object) -> bool:
    """Match a body that is one JSON object: paths would look into each item of a list."""
    return isinstance(value, dict)


def no_errors(value: Any) -> bool:
    """Match the empty list of errors that stands beside a success."""
    return isinstance(value, dict) and value.get("errors") in ([], None)


BOOK: Final = RuleBook(
    domain="records",
    codes=("errorCode", "errors.statusCode", "errors.errorCode"),
    request_ids=("x-request-id", "x-sfdc-request-id"),
    unchanged="Nothing was written.",
    unconfirmed="Whether anything was written is not confirmed.",
    rules=(
        # The proof of success: of a new record its id. Of a changed one the flow looks for it.
        Rule(
            id="records/created",
            when=When(status=201, body={"": no_errors, "id": an_id, "success": True}),
            reason=Reason.COMPLETED,
            say="The record was written.",
            why="201 with the new record's own id, and no error beside it.",
            source=f"{_REST}resources_sobject_basic_info_post.htm",
        ),
        # Somebody else was there first.
        Rule(
            id="records/stale",
            when=When(status=412),
            reason=Reason.TRANSIENT,
            say="Somebody else has changed this record at the same moment. Looking at how it stands now would help.",
            why="The precondition names the version that was read; the newer one is not written over.",
            source=CONDITIONS,
        ),
        Rule(
            id="records/exists",
            when=When(body={CODE: "DUPLICATE_VALUE"}),
            reason=Reason.TRANSIENT,
            say="A record like this was written at the same moment. Looking at how it stands now would help.",
            why="Another record holds a value that only one may hold; whether it is ours the flow looks up.",
            source=CODES,
        ),
        Rule(
            id="records/locked-row",
            when=When(body={CODE: "UNABLE_TO_LOCK_ROW"}),
            reason=Reason.TRANSIENT,
            say="Somebody else is working on this record. Waiting a little would help.",
            why="A lock is held for seconds; nothing was written.",
            source=CODES,
            effect=Effect.NONE,
        ),
        Rule(
            id="records/conflict",
            when=When(status=409),
            reason=Reason.TRANSIENT,
            say="Something else got in the way of this change. Looking at how the record stands now would help.",
            why="The state of the record was in the way; another look settles that.",
            source=ERRORS,
        ),
        Rule(
            id="records/ambiguous",
            when=When(status=300),
            reason=Reason.FATAL,
            say="This number belongs to several records. Somebody has to put that right.",
            why="The field that should identify a record does not; no call of ours can choose.",
            source=BY_EXTERNAL_ID,
        ),
        # Limits: some pass in seconds, some in a day or for money.
        Rule(
            id="records/too-many-at-once",
            when=When(body={CODE: "REQUEST_LIMIT_EXCEEDED", "message": re.compile(r"(?i)concurrent")}),
            reason=Reason.TRANSIENT,
            say="The record service has too much to do at the moment. Waiting a little would help.",
            why="Too many long requests at once: the same code as the day's limit, and over in seconds.",
            source=LIMITS,
            retry_after_s=20,
        ),
        Rule(
            id="records/quota",
            when=When(body={CODE: {"REQUEST_LIMIT_EXCEEDED", "LIMIT_EXCEEDED", "STORAGE_LIMIT_EXCEEDED"}}),
            reason=Reason.POLICY_BLOCK,
            say="What our plan with the record service allows is used up.",
            why="The day's requests or the storage are spent: they come back in hours, or for money.",
            source=LIMITS,
        ),
        Rule(
            id="records/rate",
            when=When(status=429),
            reason=Reason.TRANSIENT,
            say="The record service gets too many requests from us at the moment. Waiting a little would help.",
            why="A rate limit passes by itself.",
            source="https://www.rfc-editor.org/rfc/rfc6585#section-4",
            retry_after_s=20,
        ),
        # Whose rules refuse.
        Rule(
            id="records/not-permitted",
            when=When(
                body={
                    CODE: {
                        "API_CURRENTLY_DISABLED",
                        "API_DISABLED_FOR_ORG",
                        "FUNCTIONALITY_NOT_ENABLED",
                        "INSUFFICIENT_ACCESS",
                        "INSUFFICIENT_ACCESS_ON_CROSS_REFERENCE_ENTITY",
                        "INSUFFICIENT_ACCESS_OR_READONLY",
                        "TRANSFER_REQUIRES_READ",
                    }
                }
            ),
            reason=Reason.POLICY_BLOCK,
            say="We are not permitted to write this record.",
            why="The session is valid, and its user's rights, or the organisation's settings, do not allow this.",
            source=CODES,
        ),
        Rule(
            id="records/locked",
            when=When(body={CODE: "ENTITY_IS_LOCKED"}),
            reason=Reason.POLICY_BLOCK,
            say="This record is locked, since somebody has to approve it first.",
            why="An approval process locks it: somebody's rule, not a moment.",
            source=CODES,
        ),
        Rule(
            id="records/looks-like-another",
            when=When(body={CODE: "DUPLICATES_DETECTED"}),
            reason=Reason.POLICY_BLOCK,
            say="There is a record like this one already, and the rules do not allow a second.",
            why="The organisation's own rule against duplicates refuses; nobody words around it.",
            source="https://developer.salesforce.com/docs/atlas.en-us.object_reference.meta/object_reference/"
            "sforce_api_objects_duplicaterule.htm",
        ),
        # What no argument changes.
        Rule(
            id="records/session",
            when=When(body={CODE: {"INVALID_AUTH_HEADER", "INVALID_LOGIN", "INVALID_SESSION_ID"}}),
            reason=Reason.FATAL,
            say="The record service does not accept our access. Its setup has to be looked at.",
            why="The session is expired, revoked or none; the model holds no other.",
            source=ERRORS,
        ),
        Rule(
            id="records/deleted",
            when=When(body={CODE: "ENTITY_IS_DELETED"}),
            reason=Reason.FATAL,
            say="This record was deleted.",
            why="It lies in the bin; no write reaches it there.",
            source=CODES,
        ),
        Rule(
            id="records/setup",
            when=When(
                body={
                    CODE: {
                        "INVALID_TYPE",
                        "METHOD_NOT_ALLOWED",
                        "NOT_FOUND",
                        "UNSUPPORTED_API_VERSION",
                    }
                }
            ),
            reason=Reason.FATAL,
            say="The place where records are kept cannot be found. Its setup has to be looked at.",
            why="Object, identifying field and version are configuration. (That a record is new the flow knows.)",
            source=ERRORS,
        ),
        Rule(
            id="records/automation",
            when=When(body={CODE: {"CANNOT_EXECUTE_FLOW_TRIGGER", "CANNOT_INSERT_UPDATE_ACTIVATE_ENTITY"}}),
            reason=Reason.FATAL,
            say="A rule that runs along with this record failed. Somebody has to look at it.",
            why="The organisation's own automation broke, and the whole change was rolled back.",
            source=CODES,
            effect=Effect.NONE,
        ),
        # What other values change.
        Rule(
            id="records/field-missing",
            when=When(body={CODE: {"REQUIRED_FIELD_MISSING", "MISSING_ARGUMENT"}}),
            reason=Reason.TRANSIENT,
            say="A field that the record needs is missing. Asking the customer for it would help.",
            why="The model can add it.",
            source=CODES,
        ),
        Rule(
            id="records/field-unknown",
            when=When(
                body={CODE: {"INVALID_FIELD", "INVALID_FIELD_FOR_INSERT_UPDATE", "INVALID_ARGUMENT_TYPE"}}
            ),
            reason=Reason.TRANSIENT,
            say="One of these fields does not exist, or cannot be written. Other fields would help.",
            why="The model names the fields.",
            source=CODES,
        ),
        Rule(
            id="records/value",
            when=When(
                body={
                    CODE: {
                        "FIELD_CUSTOM_VALIDATION_EXCEPTION",
                        "FIELD_FILTER_VALIDATION_EXCEPTION",
                        "FIELD_INTEGRITY_EXCEPTION",
                        "INVALID_CROSS_REFERENCE_KEY",
                        "INVALID_EMAIL_ADDRESS",
                        "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST",
                        "INVALID_TYPE_ON_FIELD_IN_RECORD",
                        "JSON_PARSER_ERROR",
                        "MALFORMED_ID",
                        "NUMBER_OUTSIDE_VALID_RANGE",
                        "STRING_TOO_LONG",
                    }
                }
            ),
            reason=Reason.TRANSIENT,
            say="The record service does not accept one of these values. Another one would help.",
            why="Length, form, range, a list of choices, a validation rule: each is about a value of the model's.",
            source=CODES,
        ),
        # What a moment changes.
        Rule(
            id="records/unavailable",
            when=When(body={CODE: {"QUERY_TIMEOUT", "REQUEST_RUNNING_TOO_LONG", "SERVER_UNAVAILABLE"}}),
            reason=Reason.TRANSIENT,
            say="The record service is not available at the moment. Waiting a little would help.",
            why="Maintenance and load pass.",
            source=ERRORS,
        ),
        *INFRASTRUCTURE,
    ),
    picked=(
        Rule(
            id="records/changed",
            reason=Reason.COMPLETED,
            say="The record was written.",
            why="Read anew after the change, the record holds every value that was to be written.",
            source=ROWS,
        ),
        Rule(
            id="records/as-asked",
            reason=Reason.COMPLETED,
            say="The record is already as asked.",
            why="The record of this very number holds every value: the same write was done before.",
            source=ROWS,
        ),
        Rule(
            id="records/unconfirmed",
            reason=Reason.TRANSIENT,
            say="This change could not be confirmed. Looking at the record in a little while would help.",
            why="The change was sent, and a look at the record right after it does not show it: it may come late.",
            source=ROWS,
            effect=Effect.UNKNOWN,
        ),
        Rule(
            id="records/unreadable",
            reason=Reason.TRANSIENT,
            say="The record could not be read. Waiting a little would help.",
            why="What cannot be read is not written over.",
            source=ROWS,
            effect=Effect.NONE,
        ),
        Rule(
            id="records/no-number",
            reason=Reason.TRANSIENT,
            say="It is not said which record is meant. Its number would help.",
            why="The model can name one. Nothing was sent.",
            source=BY_EXTERNAL_ID,
            effect=Effect.NONE,
        ),
        Rule(
            id="records/too-long",
            reason=Reason.TRANSIENT,
            say="One of these values is too long for any field. A shorter one would help.",
            why="The longest text field holds 131,072 characters. Nothing was sent.",
            source=CODES,
            effect=Effect.NONE,
        ),
        Rule(
            id="records/no-fields",
            reason=Reason.TRANSIENT,
            say="It is not said what to write. Names of fields with their values would help.",
            why="The model can name them; the number and the system's own fields are none. Nothing was sent.",
            source=ROWS,
            effect=Effect.NONE,
        ),
    ),
)
"""The table."""
