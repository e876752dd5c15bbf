"""Stores for tests, one class per engine.

- `fresh()`: an address at which nothing was made yet.
- `migrated()`: a store of the test's own that no other test has used.
- `emptied()`: a migrated store without rows, and cheaper than the two others. On SQLite it is a
  copy of a file. On PostgreSQL and DuckDB tests use the same one in turn: before each of them all
  rows are deleted and those of `meta` restored. Sequences go on.

A test may leave anything behind in an emptied store: rows, open connections, tables of its own,
dropped ones of ours. Which tables there are is read from the catalogue, never listed here. A store
whose catalogue a test changed is thrown away, and so is one that was used often enough. Macros of
DuckDB alone are not noticed, to list them takes longer than to make a store: a test that creates
any asks for a store of its own, and a second one of that name would fail.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import psycopg
from psycopg import sql

from rota.duckdb_instances import Instance, open_instance, path_from_url
from rota.storage.store import open_store
from tests.support.postgres import Server

# Deleted rows stay in the files until a vacuum; a new store costs less than to think about it.
MOST_USES = 100
# What decides in which database a PostgreSQL store takes itself for a moved one.
HOME = ("server", "database")


# The fixture of each engine whose stores several processes can open.
STORE_FIXTURES = {
    "sqlite": "sqlite_stores", "postgres": "postgres_stores", "duckdb": "duckdb_file_stores",
}  # fmt: skip


class Stores(Protocol):
    """Stores of one engine, in one process of pytest."""

    def fresh(self) -> AbstractContextManager[str]: ...
    def migrated(self) -> AbstractContextManager[str]: ...
    def emptied(self) -> AbstractContextManager[str]: ...
    def close(self) -> None: ...


def migrate(url: str) -> None:
    store = open_store(url)
    store.migrate()
    store.close()


class FileStores:
    """Files in a folder. A copy of one that is migrated costs less than to migrate another."""

    def __init__(self, folder: Path, scheme: str) -> None:
        self._folder, self._scheme = folder, scheme
        self._numbers = count(1)
        self._template: Path | None = None

    @contextmanager
    def fresh(self) -> Iterator[str]:
        folder = self._folder / f"{self._scheme}-{next(self._numbers)}"
        folder.mkdir()
        yield f"{self._scheme}:///{folder / 'rota.db'}"
        # What a process that the test started still writes is nobody's business any more.
        shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def migrated(self) -> Iterator[str]:
        if self._template is None:
            template = self._folder / f"{self._scheme}-template.db"
            migrate(f"{self._scheme}:///{template}")
            self._template = template
        with self.fresh() as url:
            shutil.copyfile(self._template, url.partition(":///")[2])
            yield url

    def emptied(self) -> AbstractContextManager[str]:
        return self.migrated()

    def close(self) -> None:
        """The folder belongs to the fixture."""


class PostgresStores:
    """Databases of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._template: str | None = None
        self._shared: _PostgresStore | None = None

    def fresh(self) -> AbstractContextManager[str]:
        return self._server.database()

    def migrated(self) -> AbstractContextManager[str]:
        return self._server.database(template=self._migrated_template())

    @contextmanager
    def emptied(self) -> Iterator[str]:
        if self._shared is not None and not self._shared.empty():
            self._drop()
        if self._shared is None:
            url = self._server.create_database(template=self._migrated_template())
            self._shared = _PostgresStore(url)
        yield self._shared.url

    def close(self) -> None:
        self._drop()
        if self._template is not None:
            self._server.drop_database(self._template)

    def _drop(self) -> None:
        if self._shared is not None:
            self._server.drop_database(self._shared.url)
            self._shared = None

    def _migrated_template(self) -> str:
        if self._template is None:
            url = self._server.create_database()
            migrate(url)
            # It has no home: each copy takes the database it finds itself in for its own.
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("DELETE FROM rota_data.meta WHERE key = ANY(%s)", [[*HOME]])
            self._template = url
        return self._template


class _PostgresStore:
    """One database, and what it was like when it was new."""

    def __init__(self, url: str) -> None:
        self.url, self._uses = url, 1
        with psycopg.connect(url, autocommit=True) as connection:
            self._catalogue = connection.execute(POSTGRES_CATALOGUE).fetchall()
            self._meta = connection.execute("SELECT key, value FROM rota_data.meta").fetchall()
            tables = connection.execute(POSTGRES_TABLES).fetchall()
        # DELETE: TRUNCATE makes new files, which takes thirty times as long.
        self._delete = sql.SQL("; ").join(
            sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, table))
            for schema, table in tables
        )

    def empty(self) -> bool:
        """Delete all rows; False if it must be thrown away instead."""
        self._uses += 1
        if self._uses > MOST_USES:
            return False
        try:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(POSTGRES_LEAVE)
                if connection.execute(POSTGRES_CATALOGUE).fetchall() != self._catalogue:
                    return False
                with connection.transaction():
                    connection.execute(self._delete)
                    connection.cursor().executemany(
                        "INSERT INTO rota_data.meta (key, value) VALUES (%s, %s)", self._meta
                    )
        except psycopg.Error:  # the database is gone, or closed to us
            return False
        return True


# As DROP DATABASE … WITH (FORCE) does; the end of a session releases its locks and its transaction.
POSTGRES_LEAVE = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
   AND backend_type = 'client backend'
"""
POSTGRES_TABLES = """
SELECT schemaname, tablename FROM pg_tables
 WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2
"""
# A row that a statement wrote has a newer transaction than all there were, one that is gone makes
# the number smaller. What vacuum and analyze note, they note in place.
_WRITTEN = "SELECT '{0}', count(*), max(xmin::text::bigint) FROM {0}"
POSTGRES_CATALOGUE = " UNION ALL ".join(
    [
        *(
            _WRITTEN.format(table)
            for table in (
                "pg_class", "pg_attribute", "pg_proc", "pg_type", "pg_constraint", "pg_trigger",
                "pg_rewrite", "pg_index", "pg_policy", "pg_default_acl", "pg_extension",
            )
        ),
        # The server keeps a schema for temporary tables once there was one.
        _WRITTEN.format("pg_namespace") + r" WHERE nspname NOT LIKE 'pg\_%temp\_%'",
        _WRITTEN.format("pg_database") + " WHERE datname = current_database()",
        "SELECT 'pg_db_role_setting', count(*), NULL FROM pg_db_role_setting WHERE setdatabase ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())",
    ]
)  # fmt: skip


class DuckdbStores:
    """In memory, by a name: stores that open it share it like threads of a process."""

    def __init__(self) -> None:
        self._shared: _DuckdbStore | None = None

    @contextmanager
    def fresh(self) -> Iterator[str]:
        yield memory_url()

    @contextmanager
    def migrated(self) -> Iterator[str]:
        url = memory_url()
        handle = open_instance(path_from_url(url))  # without a handle it would be gone at once
        migrate(url)
        yield url
        handle.close()

    @contextmanager
    def emptied(self) -> Iterator[str]:
        if self._shared is not None and not self._shared.empty():
            self._shared.instance.close()
            self._shared = None
        if self._shared is None:
            self._shared = _DuckdbStore(memory_url())
        yield self._shared.url

    def close(self) -> None:
        if self._shared is not None:
            self._shared.instance.close()


class _DuckdbStore:
    def __init__(self, url: str) -> None:
        self.url, self._uses = url, 1
        self.instance: Instance = open_instance(path_from_url(url))
        cursor = self.instance.cursor()
        # Half of the time of a small statement is to wake threads that have nothing to do.
        cursor.execute("SET threads = 1")
        migrate(url)
        self._catalogue = cursor.execute(DUCKDB_CATALOGUE).fetchall()
        self._meta = cursor.execute("SELECT key, value FROM _rota_data.meta").fetchall()
        self._tables = [
            f'"{schema}"."{table}"' for schema, table in cursor.execute(DUCKDB_TABLES).fetchall()
        ]
        cursor.close()

    def empty(self) -> bool:
        """Delete all rows; False if it must be thrown away instead."""
        self._uses += 1
        if self._uses > MOST_USES or not self.instance.write_lock.acquire(blocking=False):
            return False
        cursor = self.instance.cursor()
        try:
            if cursor.execute(DUCKDB_CATALOGUE).fetchall() != self._catalogue:
                return False
            # One transaction after the other: within one, a key that is deleted is still taken.
            cursor.begin()
            for table in self._tables:
                cursor.execute(f"DELETE FROM {table}")
            cursor.commit()
            cursor.begin()
            cursor.executemany("INSERT INTO _rota_data.meta (key, value) VALUES (?, ?)", self._meta)
            cursor.commit()
        finally:
            cursor.close()
            self.instance.write_lock.release()
        return True


DUCKDB_TABLES = """
SELECT schema_name, table_name FROM duckdb_tables()
 WHERE NOT internal AND database_name = current_database() ORDER BY 1, 2
"""
DUCKDB_CATALOGUE = """
SELECT 'table', database_name, schema_name, table_name, sql FROM duckdb_tables() WHERE NOT internal
UNION ALL
SELECT 'view', database_name, schema_name, view_name, sql FROM duckdb_views() WHERE NOT internal
UNION ALL
SELECT 'index', database_name, schema_name, index_name, sql FROM duckdb_indexes()
UNION ALL
SELECT 'sequence', database_name, schema_name, sequence_name, '' FROM duckdb_sequences()
UNION ALL
SELECT 'type', database_name, schema_name, type_name, '' FROM duckdb_types() WHERE NOT internal
UNION ALL
SELECT 'schema', database_name, schema_name, '', '' FROM duckdb_schemas() WHERE NOT internal
UNION ALL
SELECT 'database', database_name, '', '', '' FROM duckdb_databases() WHERE NOT internal
ORDER BY ALL
"""


def memory_url() -> str:
    return f"duckdb:///:memory:{uuid4().hex}"
