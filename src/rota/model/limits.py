"""All named limits. Input beyond a limit is refused with a message, never cut silently."""

from __future__ import annotations

import math
import re

from rota.errors import Invalid

NAME = re.compile(r"[A-Za-z0-9._/-]{1,128}")
SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,47}")
KEY_LENGTH = 512
REASON_LENGTH = 2_000
PAYLOAD_BYTES = 256 * 1024
PAYLOAD_DEPTH = 64
BULK_RUNS = 100_000
ERROR_LENGTH = 16_000
LOG_LINES = 10_000
LOG_LINE_LENGTH = 4_000
LOGGED_LENGTH = 64_000  # of a line in the app's own logging
RESULT_BYTES = 64 * 1024
PYTHON_FILE_BYTES = 1024 * 1024
PAGE = 500
KEPT_FILE_BYTES = 8 * 1024 * 1024
KEPT_FILES_BYTES = 1024 * 1024 * 1024
KEPT_FILES = 10_000
CONCURRENCY = 10_000
PRIORITY = 1_000_000
MISSED_COUNT = 10_000
SQL_FILES = 1_000
SQL_FILE_BYTES = 8 * 1024 * 1024
KEPT_SCRIPTS_LENGTH = 64 * 1024 * 1024
SNAPSHOT_ROWS = 10_000
SNAPSHOT_RUNS = 1_000
STEP_RESULT_ROWS = 50
STEP_CELL_LENGTH = 1_000
VARIABLE_LENGTH = 4 * 1024 * 1024
INTERPOLATED_LENGTH = 64 * 1024 * 1024
# The folder of jobs, and the files of a job.
FOLDER_JOBS = 10_000
FOLDER_DEPTH = 8
FOLDER_ENTRIES = 10_000  # in one folder
MANIFEST_BYTES = 64 * 1024
TAGS = 50
# Statements of the SQL surface.
STATEMENT_LENGTH = 256 * 1024
STATEMENTS = 1_000  # in one text
SELECT_ROWS = 10_000
SELECT_SECONDS = 30.0
SELECT_BYTES = 8 * 1024 * 1024  # of one result; further rows are omitted, and `more` is set
SELECT_ROW_BYTES = 1024 * 1024
SELECT_COLUMNS = 250
SELECT_CELL_LENGTH = 64 * 1024
SHARED_JOBS = 10_000  # SQL jobs that statements made
# Known secrets, and metrics.
KNOWN_SECRETS = 1_000
SECRET_LENGTH = 64 * 1024
METRIC_JOBS = 200  # names of jobs in metrics; the rest are counted as `other`
METRIC_QUEUES = 100
METRIC_DEPTH = 100_000  # runs of one state that a scrape counts
# The HTTP API.
BODY_BYTES = 512 * 1024  # a payload of the largest size and the fields beside it
HEADER_BYTES = 32 * 1024
URL_LENGTH = 8 * 1024
CONNECTIONS = 2_000
REQUESTS_AT_ONCE = 200  # in progress; streams are counted separately
UNKNOWN_AT_ONCE = 30  # of those, from one address without token or session
STREAMS = 1_000
LOG_STREAMS = 50  # each reads the store by itself
HEAD_SECONDS = 15.0  # to receive the head of a request
BODY_SECONDS = 30.0  # to receive the body
UNKNOWN_BODY_SECONDS = 5.0
REQUEST_SECONDS = 60.0
SEND_SECONDS = 20.0  # a stream whose client reads nothing for so long is ended
STREAM_SECONDS = 6 * 3600
SESSIONS = 10_000
SESSION_HOURS = 12
WRONG_TOKENS = 10  # a minute and address
SQL_AT_ONCE = 2
COUNTED = 10_000  # counts stop here, and are marked as incomplete
TEXT_SHOWN = 64 * 1024  # of a SQL file
# Commands and requests.
COMMAND_ELEMENTS = 1_000
COMMAND_LENGTH = 100_000  # of one element; Linux takes 128 kB
ENVIRONMENT_NAMES = 200
TAIL_LINES = 20
TAIL_LENGTH = 4_000
REQUEST_HEADERS = 50
ANSWER_BYTES = 1024 * 1024
ANSWER_HEADER_LENGTH = 500
ANSWER_KEPT_LENGTH = 8_000
ANSWER_SECONDS = 60.0  # for a job without a timeout
REDIRECTS = 10
ALLOWED_NETWORKS = 1_000
# Control rows. Each is executed in one transaction, which must not hold locks for long.
CONTROL_ROWS = 100
CONTROL_BYTES = 64 * 1024
CONTROL_CHANGES = 10_000
CONTROL_SECONDS = 10.0
# Pending requests that are searched for those that a new request supersedes.
PENDING_REQUESTS = 1_000


def check_name(value: object, field: str) -> str:
    """Names appear in URLs, SQL, files and metrics, so they stay plain."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise Invalid(
            f"{field} {_quoted(value)} is not a valid name; "
            "use 1 to 128 letters, digits, . _ / or -"
        )
    if not {"", ".", ".."}.isdisjoint(value.split("/")):
        # Programs that read the name as a path, such as HTTP clients, would normalize it.
        raise Invalid(
            f"{field} {_quoted(value)} is not a valid name; what stands between / is not empty, . "
            "or .."
        )
    return value


def check_schema_name(value: object) -> str:
    """The name of a schema, which is a part of every table's name and so plainer than others."""
    if not isinstance(value, str) or not SCHEMA.fullmatch(value):
        raise Invalid(
            f"schema {_quoted(value)} is not a plain name; use up to 48 lower-case letters, digits "
            "and _, not beginning with a digit or pg_"
        )
    return value


def check_key(value: object, field: str) -> str:
    """A key of the user: any text that can be stored, up to KEY_LENGTH."""
    if not isinstance(value, str) or not 0 < len(value) <= KEY_LENGTH or "\0" in value:
        raise Invalid(f"{field} {_quoted(value)} must be text of 1 to {KEY_LENGTH} characters")
    check_text(value, field)
    return value


def check_whole(value: object, field: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise Invalid(f"{field} {_quoted(value)} must be a whole number from {low} to {high}")
    return value


def check_payload(value: object, field: str = "args") -> None:
    """Refuse what JSON cannot carry unchanged, and nesting past PAYLOAD_DEPTH."""
    pending: list[tuple[object, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > PAYLOAD_DEPTH:
            raise Invalid(f"{field} is nested deeper than {PAYLOAD_DEPTH} levels; flatten it")
        match item:
            case None | bool():
                pass
            case str():
                check_text(item, field)
            case int():
                if not -(2**63) <= item < 2**64:
                    raise Invalid(f"{field} holds a whole number past 64 bits; pass it as text")
            case float():
                if not math.isfinite(item):
                    raise Invalid(f"{field} holds {item}, which JSON cannot carry; use null")
            case dict():
                for key in item:
                    if not isinstance(key, str):
                        raise Invalid(f"{field} has the key {_quoted(key)}; JSON keys are text")
                    check_text(key, field)
                pending.extend((inner, depth + 1) for inner in item.values())
            case list() | tuple():
                pending.extend((inner, depth + 1) for inner in item)
            case _:
                raise Invalid(
                    f"{field} holds a {type(item).__name__}, which is not JSON; "
                    "use text, numbers, true/false, null, lists and objects"
                )


def check_payload_size(size: int, field: str = "args") -> None:
    if size > PAYLOAD_BYTES:
        raise Invalid(
            f"{field} takes {size:,} bytes as JSON; the limit is {PAYLOAD_BYTES:,}. "
            "Store large data elsewhere and pass a reference"
        )


def clip(text: str, limit: int) -> str:
    """Make any text storable: no NUL, no lone surrogate, at most `limit` characters."""
    if len(text) <= limit:
        return _storable(text)
    note = f"… [{len(text) - limit:,} characters cut] …"
    half = (limit - len(note)) // 2
    if half <= 0:
        return _storable(text[:limit])
    # Keep both ends: the beginning names the error, the end of a traceback says where.
    return _storable(text[:half]) + note + _storable(text[-half:])


def _storable(text: str) -> str:
    """The text with unstorable characters replaced one by one; no copy if there are none."""
    if text.isascii() and "\0" not in text:
        return text
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return clean.replace("\0", "\N{REPLACEMENT CHARACTER}")


def check_text(text: str, field: str) -> None:
    """Refuse lone surrogates, as undecoded bytes become: no database can store them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"{field} holds half of a surrogate pair in {_quoted(text)}; pass bytes as base64"
        ) from None


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
