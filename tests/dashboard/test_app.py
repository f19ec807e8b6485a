"""What the server sends around pages: no way to other hosts, no large uploads, a page that says its language."""

import pytest
from runcast.dashboard.app import MOST_UPLOADED_BYTES, make_app


@pytest.fixture(scope="module")
def client():
    return make_app().server.test_client()


def test_a_browser_may_load_and_send_nothing_elsewhere(client):
    headers = client.get("/").headers
    policy = headers["Content-Security-Policy"]

    assert ("default-src 'self'" in policy, "connect-src 'self'" in policy, headers["X-Content-Type-Options"]) == (
        True,
        True,
        "nosniff",
    )


def test_the_page_says_its_language(client):
    assert '<html lang="en">' in client.get("/").text


def test_a_large_request_is_refused(client):
    flood = b" " * (MOST_UPLOADED_BYTES + 1)
    sent = client.post("/_dash-update-component", data=flood, content_type="application/json")

    assert sent.status_code in (413, 400)
