"""`runcast dashboard`: serve the pages."""

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
    from waitress import serve

    from .app import make_app

    app = make_app(data)
    typer.echo(f"http://{host}:{port}  (Ctrl-C ends it)")
    if host not in ("127.0.0.1", "localhost", "::1"):
        typer.echo("whoever reaches this address sees your files and uses this machine: there is no login", err=True)
    serve(app.server, host=host, port=port, threads=THREADS)
