"""Secrets that are planted wherever one may be, and found nowhere: what the tests of it share.

`PLANTED` are the values, `forms` what each must not be seen as. The app below tells all of them in
every way it can: as errors, log lines, printed text, results, columns, arguments and variables.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent
from threading import Thread
from urllib.parse import quote, quote_plus

PLANTED = {
    "environment": "canary-env-7Qw+/z%9 x",
    "keyword": "canary kw 1Vb",
    "database": "canary dsn/3:x@9",
    "target": "canary-target-5Tz/é",
    "argument": "canary-arg-8Kp'q",
    "deep": 'canary-deep-2Lm"r',
    "schedule": "canary-schedule-3Wd",
    "header": "canary-header-6Nd",
    "local": "canary-local-4Rs",
    "params": "canary-params-9Yx",
}

ENVIRONMENT = {
    "SHOP_API_TOKEN": PLANTED["environment"],
    "WAREHOUSE": f"host=db password='{PLANTED['keyword']}' user=me",
}


def forms(value: str) -> Iterator[str]:
    """What must not be found: the value, its encodings, and what is left if they are cut."""
    raw = value.encode()
    yield value
    yield quote(value, safe="")
    yield quote_plus(value)
    yield raw.hex()
    for before in (b"", b"a:", b"ab:"):
        whole = base64.b64encode(before + raw).decode().rstrip("=")
        yield whole[4:-2] if before else whole[:-1]
        yield (whole[4:-2] if before else whole[:-1]).replace("+", "-").replace("/", "_")


def found(text: str) -> list[str]:
    """The canaries that can be seen in a text, with their surroundings."""
    seen = []
    for name, value in PLANTED.items():
        for form in forms(value):
            if (at := text.find(form)) >= 0:
                seen.append(f"{name}: …{text[max(0, at - 80) : at + 60]}…")
    return seen


APP = """
    import base64, os, urllib.parse
    import rota

    app = rota.Rota()

    def ways(value):
        raw = value.encode()
        return [value, repr(value), base64.b64encode(raw).decode(), raw.hex(),
                base64.urlsafe_b64encode(b"me:" + raw).decode(), urllib.parse.quote(value, safe=""),
                urllib.parse.quote_plus(value), value.replace("'", "''")]

    @app.job(max_attempts=1)
    def arguments(ctx, password: str, deep: dict) -> dict:
        for value in (password, deep["list"][0]["api_key"], os.environ["SHOP_API_TOKEN"]):
            for way in ways(value):
                ctx.logger.info("it is %s", way)
        ctx.logger.info("x" * 3_990 + password + "y" * 100)
        try:
            raise KeyError(password)
        except KeyError:
            ctx.logger.exception("with a traceback")
        ctx.progress(1, 2)
        return {"seen": ways(password), "token": "whatever", "environment": dict(os.environ)}

    @app.job(max_attempts=1)
    def traceback(ctx, password: str, deep: dict) -> None:
        api_key = "-".join(["canary", "local", "4Rs"])
        headers = {"Authorization": "Bearer " + "-".join(["canary", "header", "6Nd"])}
        told = [*ways(api_key), *ways(password), *ways(os.environ["SHOP_API_TOKEN"]), str(headers)]
        cause = RuntimeError("first: " + os.environ["WAREHOUSE"])
        raise ValueError("x" * 15_000 + password + "\\n".join(told)) from cause

    @app.job(max_attempts=1)
    async def header(ctx) -> None:
        token = "-".join(["canary", "header", "6Nd"])
        raise RuntimeError(f"GET /x HTTP/1.1\\nAuthorization: Bearer {token}\\n"
                           f"Cookie: sid={token}\\nX-Api-Key: {token}")

    @app.job(max_attempts=1)
    def settings(ctx) -> None:
        raise RuntimeError(f"{app.settings}, {app.settings.database}, {app.settings.targets}")

    @app.job(max_attempts=1)
    def asked(ctx, password: str) -> str:
        return password

    @app.job(max_attempts=1)
    def storage(ctx, password: str, deep: dict) -> None:
        ctx.db.execute("SELECT '" + password.replace("'", "''") + "' FROM nowhere")
"""

FILE = """
    import base64, os, sys, urllib.parse

    schedule = False
    max_attempts = 1
    token = os.environ["SHOP_API_TOKEN"]

    def run(ctx):
        print(token, repr(token), flush=True)
        print(base64.b64encode(token.encode()).decode(), file=sys.stderr, flush=True)
        os.write(1, (urllib.parse.quote(token, safe="") + token.encode().hex() + "\\n").encode())
        print("x" * 3_985 + token + "y" * 50_000)
        ctx.logger.warning("the environment: %s", dict(os.environ))
        raise RuntimeError(f"no entry with {token}, nor " + os.environ["WAREHOUSE"])
"""


SHELL = """
    executor = "shell"
    schedule = false
    max_attempts = 1
    command = ["sh", "-c", 'echo "$TOKEN"; printf %s "$TOKEN" | od -An -tx1 | tr -d " \\n"; exit 3']
    stdin = "${SHOP_API_TOKEN}"

    [env]
    TOKEN = "${SHOP_API_TOKEN}"
"""

REQUEST = """
    executor = "http"
    schedule = false
    max_attempts = 1
    method = "POST"
    url = "http://127.0.0.1:{port}/echo"
    body = "token ${{SHOP_API_TOKEN}}"

    [headers]
    Authorization = "Bearer ${{SHOP_API_TOKEN}}"
"""


class Echo(BaseHTTPRequestHandler):
    """Answers 500 with everything that it was sent."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        told = f"{self.headers}\n".encode() + body
        self.send_response(500)
        self.send_header("X-Echo", self.headers["Authorization"] or "")
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def echoing() -> Iterator[int]:
    """The port of a server that repeats what it is told."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def make_folder(folder: Path, port: int) -> None:
    """An app, a folder of jobs and settings that hold every kind of secret; an echo at `port`."""
    (folder / "shop.py").write_text(dedent(APP))
    jobs = folder / "jobs.d"
    for name in ("books", "away", "command", "request"):
        (jobs / name).mkdir(parents=True)
    (jobs / "leaky.py").write_text(dedent(FILE))
    (jobs / "command" / "job.toml").write_text(dedent(SHELL))
    (jobs / "request" / "job.toml").write_text(dedent(REQUEST.format(port=port)))
    books = jobs / "books"
    params = f'[params]\nprivate_key = "{PLANTED["params"]}"\n'
    (books / "job.toml").write_text("schedule = false\nmax_attempts = 1\n" + params)
    (books / "01_tell.sql").write_text(
        "SELECT '${SHOP_API_TOKEN}' AS told, '${PRIVATE_KEY}' AS more, 'x' AS password;"
    )
    (books / "02_fail.sql").write_text('SELECT * FROM "${SHOP_API_TOKEN}", "${PRIVATE_KEY}";')
    (jobs / "away" / "job.toml").write_text('schedule = false\nmax_attempts = 1\ntarget = "far"\n')
    (jobs / "away" / "01.sql").write_text("SELECT 1;")
    url = f"postgresql://me:{quote(PLANTED['target'], safe='')}@127.0.0.1:1/far?connect_timeout=2"
    executors = f'[executors]\nshell = true\nhttp = true\nhttp_allow = ["127.0.0.1:{port}"]\n'
    (folder / "rota.toml").write_text(f'[targets]\nfar = "{url}"\n{executors}')
