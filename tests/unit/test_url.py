"""URLs of databases: a password that is not encoded is refused, and nothing of it is repeated."""

from __future__ import annotations

import pytest

from rota.config import make_settings
from rota.errors import Invalid
from rota.model.url import check_url
from rota.storage.store import open_store

PASSWORDS = ["zq@xvkj", "zq@xv/kj", "zq/xvkj", "z@q/x#kj", "zq:x/vkj", "zq#x/v?kj", "12/34@xvkj"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_password_that_is_not_encoded_is_refused_without_a_word_of_it(
    password: str, scheme: str
) -> None:
    url = f"{scheme}://shop:{password}@127.0.0.1:5432/shop"
    for settings in ({"database": url}, {"targets": {"books": url}}):
        with pytest.raises(Invalid) as refused:
            make_settings(settings)
        said = str(refused.value)
        assert "percent-encode @ / # : ? in its password (p@ss is p%40ss)" in said
        assert not any(part in said for part in ("zq", "xv", "kj", "34"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop@db/shop",
        "postgresql://shop:p%40ss%2Fw%23rd@127.0.0.1:5432/shop",
        "postgresql://shop:p#s?s:x@db/shop",
        "postgresql://a:1,b:2/shop?target_session_attrs=read-write",
        "postgresql://shop:pw@[::1]:5432/shop",
        "postgresql:///shop?host=/var/run/postgresql",
        "postgresql://db/shop?user=me@home",
        "sqlite:////srv/a@b:c/rota.db",
    ],
)
def test_what_can_be_understood_is_taken(url: str) -> None:
    check_url(url, "the database URL")


def test_a_driver_in_the_scheme_is_to_be_left_out() -> None:
    for call in (
        lambda: open_store("postgresql+psycopg://me@db/shop"),
        lambda: make_settings({"targets": {"books": "postgresql+psycopg://me@db/shop"}}),
    ):
        with pytest.raises(Invalid, match=r"leave out '\+psycopg'"):
            call()
