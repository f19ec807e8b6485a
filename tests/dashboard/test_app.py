"""What the server sends around pages: no way to other hosts, a page that says its language."""

import gzip

import pytest
from runcast.dashboard.app import make_app


@pytest.fixture(scope="module")
def client():
    return make_app().server.test_client()


def test_a_browser_may_load_and_send_nothing_elsewhere(client):
    headers = client.get("/").headers
    policy = headers["Content-Security-Policy"]

    rules = ("default-src 'self'", "connect-src 'self'", "form-action 'self'", "base-uri 'self'")
    assert ([rule in policy for rule in rules], headers["X-Content-Type-Options"]) == ([True] * len(rules), "nosniff")


def test_large_answers_are_compressed_for_who_takes_that(client):
    plain = client.get("/_dash-dependencies")
    packed = client.get("/_dash-dependencies", headers={"Accept-Encoding": "gzip"})

    assert (plain.content_encoding, packed.content_encoding) == (None, "gzip")
    assert gzip.decompress(packed.data) == plain.data


def test_the_page_says_its_language(client):
    assert '<html lang="en">' in client.get("/").text
