"""`runcast dashboard`: serve the pages."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

THREADS = 32
"""Requests that are under way at once. Predictions take turns; whoever only opens a page does not wait behind them."""


def dashboard(
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8050,
    data: Annotated[Path | None, typer.Option(help="Folder of scenarios and sweeps of your own.")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any other than 127.0.0.1 lets others in: there is no login.")
    ] = "127.0.0.1",
) -> None:
    """Explore predictions in the browser."""
    from waitress import create_server

    from ..simulator.base.errors import UserError
    from .app import MOST_UPLOADED_BYTES, make_app
    from .background import Spawning

    open_to_all = host not in ("127.0.0.1", "localhost", "::1")
    with _left_by_sigterm(), Spawning() as background:
        app = make_app(data, background, open_to_all)
        limits: dict[str, int] = {"threads": THREADS, "max_request_body_size": MOST_UPLOADED_BYTES}
        try:
            server = create_server(app.server, host=host, port=port, **limits)
        except OSError as error:
            raise UserError(f"--port {port}: cannot listen on {host}: {error.strerror or error}") from None
        typer.echo(f"http://{host}:{port}  (Ctrl-C ends it)")
        if open_to_all:
            typer.echo("there is no login: whoever reaches this address sees your files, uses this machine", err=True)
        server.run()


@contextmanager
def _left_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, and not the process on the spot: processes and folders are cleared up."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
