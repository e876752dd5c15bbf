"""A query sees the views, by their bare names too; it reads nothing else and changes nothing."""

from __future__ import annotations

import sqlite3

import pytest

from rota.errors import Invalid, RotaError, Unavailable
from rota.model.limits import SELECT_BYTES, SELECT_COLUMNS, SELECT_ROW_BYTES
from rota.model.views import VIEWS
from rota.storage import operations
from rota.storage.store import Store
from tests.conformance.support import PATIENCE, Place, claim_one, enqueue, put_schedule, settle

ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT max(i) FROM n",
    "postgres": "SELECT count(*) FROM generate_series(1, 100000000000) AS n",
    "duckdb": "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
}
MANY = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) "
    "SELECT i FROM n ORDER BY i",
    "postgres": "SELECT i FROM generate_series(1, 50) AS n(i) ORDER BY i",
    "duckdb": "SELECT i FROM range(1, 51) AS n(i) ORDER BY i",
}


def select(
    store: Store, sql: str, *, limit: int = 100, seconds: float = PATIENCE
) -> list[tuple[object, ...]]:
    return list(store.select(sql, limit=limit, seconds=seconds).rows)


def test_every_view_is_known_by_its_bare_and_its_full_name(place: Place, store: Store) -> None:
    for view in VIEWS:
        bare = store.select(f"SELECT * FROM {view}", limit=5, seconds=PATIENCE)
        full = store.select(f"SELECT * FROM {place.view(view)}", limit=5, seconds=PATIENCE)
        assert bare.names == full.names
        assert len(bare.names) >= 3


def test_a_query_gives_rows_with_names_and_types(store: Store) -> None:
    run_id = enqueue(store)
    settle(store, claim_one(store))
    found = store.select(
        "SELECT run_id, state, attempt FROM runs WHERE job_name = 'job'", limit=5, seconds=PATIENCE
    )
    assert [(one.name, one.type) for one in found.columns] == [
        ("run_id", "text"), ("state", "text"), ("attempt", "integer"),
    ]  # fmt: skip
    assert found.rows == ((run_id, "succeeded", 1),)
    assert not found.more


def test_views_can_be_joined_counted_and_named_by_with(store: Store) -> None:
    put_schedule(store)
    enqueue(store)
    sql = (
        "WITH waiting AS (SELECT job_name, count(*) AS n FROM runs GROUP BY job_name) "
        "SELECT s.name, w.n FROM schedules s JOIN waiting w ON w.job_name = s.job_name"
    )
    assert select(store, sql) == [("schedule", 1)]
    assert select(store, "SELECT count(*) FROM job_queue") == [(1,)]


def test_more_rows_than_the_limit_are_cut_and_told(place: Place, store: Store) -> None:
    found = store.select(MANY[place.engine], limit=10, seconds=PATIENCE)
    assert (len(found.rows), found.rows[-1], found.more) == (10, (10,), True)
    assert not store.select(MANY[place.engine], limit=50, seconds=PATIENCE).more


TEXTS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
    "SELECT i, hex(zeroblob({size} / 2)) FROM n ORDER BY i",
    "postgres": "SELECT i, repeat('x', {size}) FROM generate_series(1, {rows}) AS n(i) ORDER BY i",
    "duckdb": "SELECT i, repeat('x', {size}) FROM range(1, {rows} + 1) AS n(i) ORDER BY i",
}


def test_an_answer_is_bounded_in_bytes_too(place: Place, store: Store) -> None:
    size = SELECT_ROW_BYTES // 2
    found = store.select(TEXTS[place.engine].format(size=size, rows=50), limit=50, seconds=PATIENCE)
    assert found.more
    assert [row[0] for row in found.rows] == list(range(1, SELECT_BYTES // size))
    for size in (SELECT_ROW_BYTES + 2, 2 * SELECT_BYTES):
        with pytest.raises(Invalid, match=r"too big|more than"):
            select(store, TEXTS[place.engine].format(size=size, rows=1))
    many = ", ".join(["1"] * (SELECT_COLUMNS + 1))
    with pytest.raises(Invalid, match="columns"):
        select(store, f"SELECT {many}")
    assert select(store, "SELECT 1") == [(1,)]


def test_a_query_that_takes_too_long_is_stopped(place: Place, store: Store) -> None:
    with pytest.raises(Unavailable, match=r"longer than 0\.2 s"):
        select(store, ENDLESS[place.engine], seconds=0.2)
    assert select(store, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("place", ["duckdb"], indirect=True)
def test_a_query_is_stopped_also_when_its_time_is_over_before_it_begins(store: Store) -> None:
    with pytest.raises(Unavailable, match="took longer"):
        select(store, ENDLESS["duckdb"], seconds=0.000_001)


WRITES = (
    "DELETE FROM {runs}", "UPDATE {runs} SET state = 'dead'", "DROP TABLE {runs}",
    "CREATE TABLE t (i INTEGER)", "INSERT INTO {runs} DEFAULT VALUES", "COMMIT",
    "SELECT 1; DROP TABLE {runs}", "SELECT 1; SELECT 2", "ATTACH 'x.db' AS x",
    "PRAGMA query_only = OFF", "SET search_path = public", "", ";", "-- nothing",
    "WITH gone AS (DELETE FROM {runs} RETURNING *) SELECT * FROM gone", "VACUUM",
    "COPY (SELECT 1) TO '/tmp/never'", "CALL x()", "DO $$ BEGIN END $$", "SELECT 1 INTO t",
)  # fmt: skip


def test_nothing_but_one_select_is_accepted(place: Place, store: Store) -> None:
    run_id = enqueue(store)
    for sql in WRITES:
        with pytest.raises(Invalid):
            print(sql, select(store, sql.format(runs=place.table("runs"))))
    assert store.read(operations.get_run, run_id).state == "queued"


PRIVATE = (
    "SELECT * FROM {runs}", "SELECT count(*) FROM {runs}",
    "SELECT (SELECT args FROM {runs} LIMIT 1)",
    "WITH runs AS (SELECT args FROM {runs}) SELECT * FROM runs", "SELECT * FROM mine",
    "WITH rota_runs AS (SELECT * FROM mine) SELECT * FROM rota_runs",
    "SELECT * FROM runs WHERE run_id IN (SELECT x FROM mine)",
    "WITH mine AS (SELECT * FROM main.mine) SELECT * FROM mine",
    "SELECT count(*) FROM mine", "SELECT 1 WHERE EXISTS (SELECT 1 FROM mine)",
    "SELECT * FROM (WITH mine AS (SELECT 1) SELECT * FROM mine) a, mine",
)  # fmt: skip
OF_ENGINE = {
    "sqlite": (
        "SELECT * FROM sqlite_master", "SELECT * FROM '_rota_runs'", 'SELECT * FROM "_ROTA_RUNS"',
        "SELECT * FROM [_rota_runs]", "SELECT * FROM `_rota_runs`", "SELECT load_extension('x')",
        "SELECT * FROM pragma_table_info('mine')", "SELECT * FROM main.mine",
        "SELECT fts3_tokenizer('simple')", "SELECT fts3_tokenizer('simple', x'4141414141414141')",
        "SELECT * FROM fts3tokenize('simple', 'a b')", "SELECT * FROM dbstat",
        "SELECT sqlite_compileoption_get(1)", "SELECT rtreecheck('mine')",
    ),
    "postgres": (
        'SELECT * FROM "rota_data"."runs"', "SELECT * FROM pg_class", "SELECT pg_read_file('x')",
        "SELECT * FROM information_schema.tables", "SELECT set_config('a.b', 'c', false)",
        "SELECT query_to_xml('SELECT 1', true, false, '')", "SELECT pg_terminate_backend(1)",
        'SELECT * FROM U&"\\0072ota_data"."runs"', "SELECT * FROM public.mine",
        "WITH a AS (SELECT * FROM public.mine), mine AS (SELECT 1) SELECT * FROM a",
        "SELECT word FROM ts_stat('SELECT array_to_tsvector(array[hash]) FROM rota_data.tokens')",
        """SELECT * FROM "ts_stat"($$SELECT 'a'::tsvector$$)""",
        "SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, ''b''::tsquery')",
        "SELECT current_query()", "SELECT to_regclass('mine')", "SELECT row_security_active('x')",
        "SELECT rota.enqueue('job')", "SELECT * FROM rota.control", "SELECT 1) AS a, (SELECT 2",
    ),
    "duckdb": (
        "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM query('SELECT 1')", "SELECT * FROM read_text('/etc/passwd')",
        "SHOW TABLES", "SELECT * FROM glob('*')", "SELECT * FROM duckdb_settings()",
        "FROM mine", 'SELECT * FROM "_rota_data"."runs"', "SELECT * FROM main.mine",
        "SELECT (SELECT x FROM mine)", "SELECT * FROM store",
        """SELECT * FROM (WITH "/etc/passwd" AS (SELECT 1) SELECT 1), '/etc/passwd'""",
        "WITH mine AS (SELECT * FROM mine) SELECT * FROM mine",
        "WITH mine AS MATERIALIZED (SELECT * FROM mine) SELECT * FROM mine",
        "WITH a AS (SELECT * FROM mine), mine AS (SELECT 1) SELECT * FROM a",
        "WITH RECURSIVE mine AS (SELECT * FROM mine UNION SELECT * FROM mine) SELECT * FROM mine",
        "WITH RECURSIVE mine AS (SELECT x FROM (SELECT * FROM mine) UNION SELECT * FROM mine) "
        "SELECT * FROM mine",
        "WITH RECURSIVE '/etc/passwd' AS (SELECT 1 UNION ALL SELECT 1), "
        "a AS (SELECT * FROM '/etc/hosts') SELECT * FROM a",
        'WITH RECURSIVE "/etc/passwd" AS (SELECT * FROM "/etc/passwd" UNION ALL '
        'SELECT * FROM "/etc/passwd" WHERE false) SELECT * FROM "/etc/passwd"',
        "SELECT * FROM runs, LATERAL (SELECT * FROM '/etc/passwd')",
        "SELECT current_setting('temp_directory')", "SELECT getvariable('x')",
        "SELECT json_serialize_plan('SELECT 1')", "SELECT write_log('x')", "SELECT pg_sleep(1)",
    ),
}  # fmt: skip


def test_private_and_foreign_tables_are_refused(place: Place, store: Store) -> None:
    place.execute("CREATE TABLE mine (x INTEGER)")
    for sql in (*PRIVATE, *OF_ENGINE[place.engine]):
        with pytest.raises(Invalid):
            print(sql, select(store, sql.format(runs=place.table("runs"))))


OF_USERS = {
    "postgres": (
        "CREATE FUNCTION peek() RETURNS bigint IMMUTABLE LANGUAGE sql "
        "AS 'SELECT count(*) FROM public.mine'",
        "CREATE FUNCTION holds(integer) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true'",
        "CREATE DOMAIN kind AS integer CHECK (public.holds(VALUE))",
        "CREATE OPERATOR public.@@@@ (RIGHTARG = integer, FUNCTION = holds)",
    ),
    "duckdb": (
        "CREATE MACRO peek() AS (SELECT max(x) FROM mine)",
        "CREATE MACRO lower(t) AS (SELECT max(x) FROM mine)",
        "CREATE MACRO range(n) AS TABLE (SELECT x FROM mine)",
    ),
}  # fmt: skip
CALLS = {
    "postgres": (
        "SELECT public.peek()", 'SELECT "public"."peek"()', "SELECT 1::public.kind",
        "SELECT OPERATOR(public.@@@@) 1", "SELECT '{1}'::public.kind[]",
    ),
    "duckdb": ("SELECT peek()", "SELECT main.peek()", "SELECT lower('A')", "FROM range(3)"),
}  # fmt: skip


@pytest.mark.own_store
@pytest.mark.parametrize("place", ["postgres", "duckdb"], indirect=True)
def test_functions_of_users_are_refused(place: Place, store: Store) -> None:
    """They are run as Rota, and may read anything."""
    place.execute("CREATE TABLE mine (x INTEGER)")
    for sql in OF_USERS[place.engine]:
        place.execute(sql)
    for sql in CALLS[place.engine]:
        with pytest.raises(Invalid, match="cannot be used here"):
            print(sql, select(store, sql))


PLAIN = {
    "sqlite": (
        "SELECT strftime('%Y', 'now'), datetime('now', '-1 day'), julianday('now'), upper('a')",
        "SELECT count(*), group_concat(job_name), max(seq), total(seq) FROM runs",
        "SELECT lag(seq) OVER (ORDER BY seq), ifnull(seq, 1), job_name LIKE 'a%' FROM runs",
        "SELECT value, json_extract('{}', '$.a'), '{}' ->> 'a' FROM json_each('[1, 2]')",
    ),
    "postgres": (
        "SELECT now() - interval '1h', date_trunc('day', now()), now()::date, now()::text",
        "SELECT to_char(now(), 'YYYY'), extract(epoch FROM now()), now() AT TIME ZONE 'UTC'",
        "SELECT random(), gen_random_uuid(), clock_timestamp(), concat('a', 1), format('%s', 1)",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY 1), string_agg('a', ','), json_agg(1)",
        "SELECT 'a' COLLATE \"C\", to_tsvector('english', 'a'), (1, 2), NULL, 'x', 'y'",
        "SELECT r, row_to_json(r), row_number() OVER (ORDER BY seq) FROM runs r", "TABLE runs",
        "SELECT * FROM json_populate_recordset(NULL::rota.runs, '[]')", "SELECT 1; -- the end",
        "SELECT generate_series(now(), now() + interval '1h', '10 min')", "VALUES (1), (2)",
    ),
    "duckdb": (
        "SELECT count(*), string_agg(job_name, ','), arg_max(job_name, seq) FROM runs",
        "SELECT strftime(now(), '%Y'), now() - INTERVAL 1 HOUR, extract(year FROM now())",
        "SELECT lag(seq) OVER (ORDER BY seq), job_name.upper(), if(seq = 1, 2, 3) FROM runs",
        "DESCRIBE runs", "SUMMARIZE runs", "FROM runs",
        "SELECT unnest([1, 2]), {'a': 1}.a, list_transform([1], lambda x: x + 1), '{}'::JSON->>'a'",
    ),
}  # fmt: skip


def test_plain_functions_can_be_called(place: Place, store: Store) -> None:
    for sql in ("SELECT 1 AS a, 2 AS a", "SELECT lower('A') || 'b';", *PLAIN[place.engine]):
        assert store.select(sql, limit=5, seconds=PATIENCE).columns, sql


def test_names_of_with_and_recursion_are_not_refused(place: Place, store: Store) -> None:
    place.execute("CREATE TABLE mine (x INTEGER)")
    for sql in (
        "WITH mine AS (SELECT 1 AS a) SELECT a FROM mine",
        "WITH a AS MATERIALIZED (SELECT 1 AS a), b AS (SELECT a FROM a) SELECT a FROM b",
        "SELECT a FROM (WITH mine AS (SELECT 1 AS a) SELECT a FROM mine) AS inside",
        "WITH RECURSIVE n(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM n WHERE a < 1) "
        "SELECT a FROM n WHERE a IN (SELECT a FROM n)",
    ):
        assert select(store, sql) == [(1,)], sql


def test_a_query_nested_too_deeply_is_refused(store: Store) -> None:
    with pytest.raises(RotaError):
        select(store, "SELECT " + "(SELECT " * 3_000 + "1" + ")" * 3_000)
    assert select(store, "SELECT 1") == [(1,)]


def test_a_role_without_temporary_views_is_told_what_it_lacks(postgres_place: Place) -> None:
    server, _, database = postgres_place.url.rpartition("/")
    role = f"plain_{database}"
    try:
        postgres_place.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        postgres_place.execute(f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")
        host = server.rpartition("@")[2]
        from rota.storage.postgres.connect import Address
        from rota.storage.postgres.select import select as ask

        address = Address(f"postgresql://{role}:x@{host}/{database}", prepare=False)
        with pytest.raises(Invalid, match="GRANT TEMPORARY"):
            ask(address, "SELECT 1", schema="rota", limit=1, seconds=PATIENCE)
    finally:
        postgres_place.execute(f"DROP ROLE IF EXISTS {role}")


def test_a_mistake_in_a_query_is_told_in_one_line(store: Store) -> None:
    for sql in ("SELECT nonsense FROM runs", "SELEC 1", "SELECT 'open", "SELECT * FROM rnus"):
        with pytest.raises(Invalid) as fault:
            select(store, sql)
        assert "\n" not in str(fault.value)


def test_a_table_that_is_not_there_is_answered_with_the_views(store: Store) -> None:
    for table in ("nope", "nowhere.runs"):
        with pytest.raises(Invalid) as fault:
            select(store, f"SELECT * FROM {table}")
        assert "jobs, job_queue, job_runs, schedules, occurrences, runs" in str(fault.value)
    with pytest.raises(Invalid) as fault:
        select(store, "SELECT nonsense FROM runs")
    assert "occurrences" not in str(fault.value)


def test_a_column_that_is_not_there_is_answered_with_a_close_one(store: Store) -> None:
    for sql in ("SELECT nam FROM schedules", "SELECT s.nam FROM schedules AS s"):
        with pytest.raises(Invalid) as fault:
            select(store, sql)
        assert str(fault.value).endswith("; did you mean name?"), fault.value
    with pytest.raises(Invalid) as fault:
        select(store, "SELECT zzzz FROM schedules")
    assert "did you mean" not in str(fault.value)


def test_passwords_in_urls_are_not_shown(store: Store) -> None:
    (row,) = select(store, "SELECT 'postgresql://me:geheim@db/shop'")
    assert row == ("postgresql://me:[redacted]@db/shop",)


def test_a_store_in_memory_can_be_written_after_a_query() -> None:
    from rota.storage.store import open_store

    store = open_store("sqlite:///:memory:")
    store.migrate()
    assert select(store, "SELECT count(*) FROM runs") == [(0,)]
    store.write(operations.ensure_queues, ["after"])
    assert select(store, "SELECT count(*) FROM queues WHERE name = 'after'") == [(1,)]
    with pytest.raises(Invalid):
        select(store, "DELETE FROM rota_runs")
    store.write(operations.ensure_queues, ["later"])
    store.close()
    assert sqlite3.sqlite_version_info >= (3, 37)
