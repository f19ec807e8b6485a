"""What the server sends around pages: no way to other hosts, a page that says its language."""

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


def test_the_page_says_its_language(client):
    assert '<html lang="en">' in client.get("/").text
