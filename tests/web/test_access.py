"""Who may call what: every route by everybody, and every change from everywhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota.model.roles import ROLES as ROLE_NAMES
from rota.model.roles import VIEWER, covers
from rota.web.api import make_api
from rota.web.feed import Feed
from rota.web.routing import PUBLIC
from rota.web.table import ROUTES
from rota.web.who import SAFE_METHODS
from tests.support.routes import ROLES
from tests.surface.conftest import environment
from tests.web.support import WRONG, Site, fresh_id, serving

PLACES = {
    "job": "nothing", "schedule": "nothing", "queue": "nothing", "run": fresh_id(),
    "group": "0" * 16, "file": "nothing", "token": "0" * 16, "mark": "nothing",
}  # fmt: skip
STREAMS = ("/events", "/api/v1/runs/{run}/logs/stream")
LOGIN = ("POST", "/api/v1/session")
UNSAFE = [(method, path) for method, path in ROLES if method not in SAFE_METHODS]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("house")) as made:
        yield made


def ask(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
    """A request that finds nothing: who is let in is answered with anything but 401 and 403."""
    body = None if method in SAFE_METHODS or method == "DELETE" else {}
    url = path.format(**PLACES)
    with client.stream(method, url, json=body, **more) as answer:
        if path not in STREAMS or answer.status_code != 200:
            answer.read()
        return answer


def is_let_in(answer: httpx.Response) -> bool:
    # To log in takes a token in the body, whoever asks.
    login = (answer.request.method, answer.url.path) == LOGIN and answer.status_code == 401
    return login or answer.status_code not in (401, 403, 421)


def test_the_server_has_the_routes_of_the_table_and_no_others(house: Site) -> None:
    api: Any = make_api(house.app, house.web, Feed(lambda: house.app.storage))
    assert {route.path for route in api.routes} == {route.path for route in ROUTES}
    assert len(ROLES) == len(ROUTES), "each path has one route for a method"
    assert {route.role for route in ROUTES} == {PUBLIC, *ROLE_NAMES}


def test_every_route_is_in_the_document_with_its_role(house: Site) -> None:
    told = house.client().get("/api/v1/openapi.json").json()["paths"]
    found = {
        (method.upper(), path): operation["x-rota-role"]
        for path, operations in told.items()
        for method, operation in operations.items()
    }
    # Pages and the document itself are not part of it.
    pages = {(method, path) for method, path in ROLES if path.startswith("/static/")}
    hidden = {("GET", "/"), ("GET", "/api/v1/openapi.json"), *pages}
    assert found == {key: role for key, role in ROLES.items() if key not in hidden}


@pytest.fixture(scope="module")
def revoked(house: Site) -> str:
    made, text = house.app.control.create_token("gone", "admin")
    house.app.control.revoke_token(made.id)
    return text


@pytest.fixture(scope="module")
def expired(house: Site) -> str:
    _, text = house.app.control.create_token("late", "admin", expires="1s")
    house.app.storage.engine.write(  # type: ignore[attr-defined]
        "test", lambda tx: tx.text("UPDATE _rota_tokens SET expires_at = 1 WHERE name = 'late'", {})
    )
    return text


@pytest.mark.parametrize(("method", "path"), ROLES)
def test_a_route_lets_in_whom_the_table_names(
    house: Site, revoked: str, expired: str, method: str, path: str
) -> None:
    needed = ROLES[method, path]
    # What is the same for everybody is told without a look at who asks.
    same_for_all = needed == PUBLIC and method == "GET" and path != "/api/v1/session"
    for wrong in (WRONG, revoked, expired, "rubbish"):
        with house.client(wrong) as client:
            assert (ask(client, method, path).status_code == 401) is not same_for_all
    for role in ROLE_NAMES:
        with house.client(role) as client:
            answer = ask(client, method, path)
        assert is_let_in(answer) is (needed == PUBLIC or covers(role, needed)), (role, answer)
        assert is_let_in(answer) or answer.status_code == 403


@pytest.mark.parametrize(("method", "path"), ROLES)
def test_without_a_token_this_machine_may_look_and_others_nothing(
    house: Site, method: str, path: str
) -> None:
    needed = ROLES[method, path]
    with house.client(Origin=house.url) as here:
        status = ask(here, method, path).status_code
    # A session without a token is begun only where --open-local is on.
    closed = needed not in (PUBLIC, VIEWER) or (method, path) == LOGIN
    assert (status == 401) is closed, status
    # As through a proxy: the address is this machine's, and the question is not.
    with house.client(Origin=house.url, **{"X-Forwarded-For": "198.51.100.7"}) as elsewhere:
        status = ask(elsewhere, method, path).status_code
    closed = needed != PUBLIC or (method, path) == LOGIN
    assert (status == 401) is closed, status


@pytest.mark.parametrize(("method", "path"), UNSAFE)
def test_a_change_needs_its_own_page_or_a_token(house: Site, method: str, path: str) -> None:
    def refused(client: httpx.Client, **headers: str) -> tuple[int, str]:
        answer = ask(client, method, path, headers=headers)
        return answer.status_code, answer.json()["code"]

    foreign = (
        "https://evil.example", "null", house.url + "0", house.url + "/x", "http://[",
        house.url.replace("http:", "https:"),
    )  # fmt: skip
    with house.client("admin") as program:
        for origin in foreign:
            assert refused(program, Origin=origin) == (403, "origin")
        for host in (
            "evil.example",
            "evil.example:80",
            "localhost.evil.example",
            "",
            "a@localhost",
            "[::1]x",
            "[::1]:80x",
            "[::1",
        ):
            assert refused(program, Host=host) == (421, "host")
        # Without an Origin, and with its own: a token is enough.
        assert is_let_in(ask(program, method, path))
        assert is_let_in(ask(program, method, path, headers={"Origin": house.url}))
    with closing(house.login("admin")) as browser:
        for origin in foreign:
            assert refused(browser, Origin=origin) == (403, "origin")
        secret = browser.headers.pop("X-Rota-CSRF")
        assert refused(browser) == (403, "csrf")
        assert refused(browser, **{"X-Rota-CSRF": secret[:-1]}) == (403, "csrf")
        del browser.headers["Origin"]
        assert refused(browser, **{"X-Rota-CSRF": secret}) == (403, "origin")
    with closing(house.login("admin")) as browser:
        assert is_let_in(ask(browser, method, path))


def test_every_look_checks_the_host(house: Site) -> None:
    for method, path in ROLES:
        if method == "GET":
            with house.client("admin") as client:
                assert (
                    ask(client, method, path, headers={"Host": "evil.example"}).status_code == 421
                )


def test_others_cannot_reach_it_without_a_token(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rota.cli", "up", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "rota token create" in done.stderr
    assert list(tmp_path.iterdir()) == []  # no store was made for the refusal
