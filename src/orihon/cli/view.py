"""`orihon view`: the web viewer."""

from __future__ import annotations

import click

from orihon.cli._command import Session, complete_uuid, store_command
from orihon.cli._output import say_line
from orihon.cli._translate import translate
from orihon.errors import UsageError

HOST = "127.0.0.1"
MAX_PORT = 65535


@store_command()
@click.argument("uuid", metavar="[UUID]", required=False, shell_complete=complete_uuid)
@click.option("--host", default=HOST, show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, MAX_PORT), default=0, help="Port to listen on.  [default: one that is free]"
)
@click.option("--no-browser", is_flag=True, help="Print the address, and do not open the browser.")
def view(session: Session, uuid: str | None, host: str, port: int, *, no_browser: bool) -> None:
    """Show tasks in the browser: what the model saw at each call, what was folded and why, and what it cost.

    The server only reads. It listens on this machine only, unless --host says otherwise. The printed address works
    once; then the browser has a cookie. The audit records what is looked at. Ctrl-C ends the server. Needs the extra
    `view`.

    \b
    orihon view
    orihon view 550e8400
    orihon view --port 8700 --no-browser
    """
    try:
        from orihon.view.server import Server  # noqa: PLC0415 - only with the extra
    except ImportError as error:
        raise UsageError(f"The viewer needs more packages: {error}.", hint="pip install 'orihon[view]'") from error
    path = f"/t/{session.authorized.row(uuid).uuid}" if uuid else "/"
    server = Server(session.authorized, host=host, port=port)
    address = server.address(path)
    click.echo(address)  # `say_line` would mask the token
    say_line(translate("The address works once. Ctrl-C ends the server."), err=True)
    if not no_browser:
        click.launch(address)
    server.run()
