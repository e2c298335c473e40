"""The commands of ``sqlqueue server``, over :mod:`sqlqueue_spark.embedded.kept_server`."""

from __future__ import annotations

from pathlib import Path

import click

from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.embedded.kept_server import KeptServer, State


def _kept(command: parameters.Command) -> parameters.Command:
    """Add the options of each command. The command gets the server as ``kept``."""
    folder = click.option(
        "--folder",
        "kept",
        type=click.Path(file_okay=False, path_type=Path),
        callback=lambda _, __, folder: KeptServer(folder),
        help="Folder of its data; default sqlqueue/server below $XDG_DATA_HOME or ~/.local/share, "
        "for root below /var/lib.",
    )
    return folder(parameters.debug(command))


@click.group()
def server() -> None:
    """Run a PostgreSQL server on this machine, to try things out. It needs the extra demo, and nothing else.

    It listens on 127.0.0.1 only and asks for a password, which only `url` prints. Its url stays the same.
    """


@server.command()
@_kept
def start(kept: KeptServer) -> None:
    """Start it, and say where its data and its url are. It runs until it is stopped."""
    began = kept.start()
    _, port = kept.status()
    runs = "runs" if began else "runs already"
    output.say(f"A PostgreSQL server {runs} on port {port} of this machine; its data are in {kept.folder}")
    output.say(f"Its url, with the password, is in {kept.url_file}, which you alone can read:")
    output.say(f'  export SQLQUEUE_URL="$({kept.command("url")})"')
    if began:
        output.say(f"It runs on until: {kept.command('stop')}")


@server.command()
@_kept
def stop(kept: KeptServer) -> None:
    """Stop it; its data stay."""
    if kept.stop():
        output.say(f"The server in {kept.folder} is stopped; its data stay until: {kept.command('remove')}")
    else:
        output.say(f"The server in {kept.folder} does not run.")


@server.command()
@_kept
@parameters.as_json
@click.pass_context
def status(ctx: click.Context, kept: KeptServer, json_: bool) -> None:
    """Say whether it runs, and where; exit code 1 when it does not."""
    state, port = kept.status()
    if json_:
        told = {"state": state, "folder": str(kept.folder), "port": port, "urlFile": str(kept.url_file)}
        output.say(output.as_json(told))
    elif state is State.NONE:
        output.say(f"There is no server in {kept.folder}")
    else:
        at = "" if port is None else f" on port {port}"
        output.say(f"{state}{at}, with its data in {kept.folder}")
    ctx.exit(0 if state is State.RUNNING else 1)


@server.command()
@_kept
def url(kept: KeptServer) -> None:
    """Print its url, with the password in it.

    For a shell: export SQLQUEUE_URL="$(sqlqueue server url)"
    """
    output.exactly(f"{kept.url()}\n")


@server.command()
@_kept
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(kept: KeptServer, yes: bool) -> None:
    """Stop it and delete its data."""
    size = kept.size()
    if not yes:
        parameters.confirmed(
            f"The server in {kept.folder} will be stopped and its data ({size / 1e6:,.0f} MB) deleted; "
            "to go on, type remove",
            "remove",
            "nothing was deleted",
        )
    left = kept.remove()
    output.say(f"removed the server in {kept.folder}")
    if left:
        output.say(f"The folder stays, for it holds other things: {', '.join(left)}")
