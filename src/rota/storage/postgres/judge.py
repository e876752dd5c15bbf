"""What a query is made of, as the server itself understands it, before any of it is run.

A text can hide a call in many ways, and even planning a query runs functions. So the query becomes
a temporary view, which is parsed and no more; the catalogue then tells every relation and every
function in it, and the view is undone. A list of words could not hold here: `ts_stat` runs the
text that it is given.
"""

from __future__ import annotations

from typing import Any

import psycopg

from rota.errors import Invalid
from rota.model.views import VIEWS, beyond_views, without_end

# Immutable functions see nothing but their arguments. Of the others these: they ask for the time,
# the time zone, or how a value is written, and for nothing by its name.
_STABLE = frozenset({
    "age", "anytextcat", "array_to_json", "array_to_string", "concat", "concat_ws", "convert",
    "convert_from", "convert_to", "current_database", "current_schema", "current_user", "date",
    "enum_first", "enum_last", "enum_range", "extract", "format", "generate_series", "in_range",
    "interval_pl_timestamptz", "length", "make_timestamptz", "money", "now", "numeric", "overlaps",
    "phraseto_tsquery", "plainto_tsquery", "quote_literal", "quote_nullable", "row_to_json",
    "session_user", "statement_timestamp", "textanycat", "time", "timetz", "timezone", "to_char",
    "to_date", "to_json", "to_jsonb", "to_number", "to_timestamp", "to_tsquery", "to_tsvector",
    "transaction_timestamp", "ts_headline", "ts_match_tq", "ts_match_tt", "version",
    "websearch_to_tsquery", "xml",
})  # fmt: skip
_STABLE_PREFIXES = ("date_", "json_", "jsonb_", "timestamp")
_VOLATILE = frozenset({
    "clock_timestamp", "gen_random_uuid", "random", "random_normal", "timeofday", "uuidv4",
    "uuidv7",
})  # fmt: skip
_NO_RIGHT = "42501"

# What the tree of the view names by number. A text in the query cannot hide any of it: the most it
# can do is to look like one more.
_NAMED = """
CREATE TEMP VIEW {view} AS SELECT 1 AS one FROM (
{query}
) AS asked
"""
_RELATIONS = """
SELECT DISTINCT s.nspname, c.relname
  FROM pg_catalog.pg_rewrite r,
       pg_catalog.regexp_matches(r.ev_action::text, ':relid (\\d+)', 'g') AS found,
       pg_catalog.pg_class c, pg_catalog.pg_namespace s
 WHERE r.ev_class = %(view)s::regclass AND c.oid = found[1]::oid AND c.oid <> r.ev_class
   AND s.oid = c.relnamespace
"""
_FUNCTIONS = """
SELECT DISTINCT p.proname, p.provolatile::text
  FROM pg_catalog.pg_rewrite r,
       pg_catalog.regexp_matches(
           r.ev_action::text, ':(?:funcid|aggfnoid|winfnoid|opfuncid) (\\d+)', 'g') AS found,
       pg_catalog.pg_proc p
 WHERE r.ev_class = %(view)s::regclass AND p.oid = found[1]::oid
"""
# A view depends on all that it uses and that is not PostgreSQL's own.
_FOREIGN = """
SELECT pg_catalog.pg_describe_object(d.refclassid, d.refobjid, 0)
  FROM pg_catalog.pg_rewrite r
  JOIN pg_catalog.pg_depend d
    ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid
  LEFT JOIN pg_catalog.pg_type t
    ON d.refclassid = 'pg_catalog.pg_type'::regclass AND t.oid = d.refobjid
 WHERE r.ev_class = %(view)s::regclass
   AND d.refclassid IN ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass,
                        'pg_catalog.pg_type'::regclass)
   AND t.typnamespace IS DISTINCT FROM %(schema)s::regnamespace
 LIMIT 1
"""


def judge(connection: psycopg.Connection[Any], query: str, schema: str) -> None:
    """Refuse a query that uses anything but the views and harmless functions of PostgreSQL's own.
    In a transaction that may write."""
    about = {"view": "pg_temp.rota_asked", "schema": f'"{schema}"'}
    connection.execute("SAVEPOINT judged")
    text = _NAMED.format(view=about["view"], query=without_end(query, "postgres"))
    try:
        # In binary, because then the server takes one statement only.
        connection.cursor(binary=True).execute(text)
    except psycopg.Error as fault:
        if fault.sqlstate == _NO_RIGHT and "temporary" in str(fault):
            raise Invalid(
                "a query is read as a temporary view before it is run, and Rota's role may not "
                "make one; GRANT TEMPORARY ON DATABASE to it"
            ) from fault
        raise
    for owner, name in connection.execute(_RELATIONS, about).fetchall():
        if owner != schema or name not in VIEWS:
            raise beyond_views(f"{owner}.{name}")
    for (what,) in connection.execute(_FOREIGN, about).fetchall():
        raise Invalid(f"{what} cannot be used here; use PostgreSQL's own functions and types")
    for name, kind in connection.execute(_FUNCTIONS, about).fetchall():
        if not _harmless(name, kind):
            raise Invalid(f"the function {name} cannot be used here; it sees more than the views")
    connection.execute("ROLLBACK TO SAVEPOINT judged")


def _harmless(name: str, kind: str) -> bool:
    match kind:
        case "i":
            return True
        case "s":
            return name in _STABLE or name.startswith(_STABLE_PREFIXES)
        case _:
            return name in _VOLATILE
