"""The commands of ``sqlqueue server``, over :mod:`sqlqueue_spark.embedded.kept_server`."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.embedded.kept_server import KeptServer, ServerState, Status
from sqlqueue_spark.embedded.server_processes import Client
from sqlqueue_spark.plain_text import age, moment


def _kept(command: parameters.Command) -> parameters.Command:
    """Add the options of each command. The command gets the server as ``kept``."""
    folder = click.option(
        "--folder",
        "kept",
        type=click.Path(file_okay=False, path_type=Path),
        callback=lambda _, __, folder: KeptServer(folder),
        help="Folder of its data; default sqlqueue/server below $XDG_DATA_HOME or ~/.local/share, "
        "for root below /var/lib, one for each HOME.",
    )
    return folder(parameters.debug(command))


def _told(found: Status) -> Iterator[str]:
    """Yield who started a server that runs, since when it runs, and who is connected."""
    if found.started_at is not None:
        by = f"by {found.started_by} " if found.started_by else ""
        ago = age(datetime.now(UTC) - found.started_at)
        yield f"It was started {by}at {moment(found.started_at)}, {ago} ago"
        yield f"Connected: {_named(found.connected) or 'no process'}"


def _named(connected: Iterable[Client]) -> str:
    return ", ".join(
        f"{each.program} (process {each.process} of {each.user}"
        f"{f', in {each.folder}' if each.folder else ''})"
        if each.program
        else "a process of another user"
        for each in connected
    )


def confirm_stop(folder: Path, connected: tuple[Client, ...], yes: bool) -> None:
    """Have it confirmed that the server in a folder is stopped, where it would cut off others."""
    if connected and not yes:
        parameters.confirmed(
            f"The server in {folder} will be stopped, and cuts off {_named(connected)}; to go on, type stop",
            "stop",
            "nothing was stopped",
        )


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
    found = kept.status()
    runs = "runs" if began else "runs already"
    output.say(
        f"A PostgreSQL server {runs} on port {found.port} of this machine; its data are in {kept.folder}"
    )
    if not began:
        output.lines(_told(found))
    output.say(f"Its url, with the password, is in {kept.url_file}, which you alone can read:")
    output.say(f'  export SQLQUEUE_URL="$({kept.command("url")})"')
    if began:
        output.say(f"It runs on until: {kept.command('stop')}")


@server.command()
@_kept
@parameters.yes
def stop(kept: KeptServer, yes: bool) -> None:
    """Stop it; its data stay. It asks first where processes are connected, for they would be cut off."""
    confirm_stop(kept.folder, kept.status().connected, yes)
    if kept.stop():
        output.say(f"The server in {kept.folder} is stopped; its data stay until: {kept.command('remove')}")
    else:
        output.say(f"The server in {kept.folder} does not run.")


@server.command()
@_kept
@parameters.as_json
def status(kept: KeptServer, json_: bool) -> bool:
    """Say whether it runs, where, who started it and who is connected; exit code 1 when it does not."""
    found = kept.status()
    if json_:
        where = {"folder": str(kept.folder), "urlFile": str(kept.url_file)}
        output.say(output.as_json(output.told(found) | where))
    elif found.state is ServerState.NONE:
        output.say(f"There is no server in {kept.folder}")
    else:
        at = "" if found.port is None else f" on port {found.port}"
        output.say(f"{found.state}{at}, with its data in {kept.folder}")
        output.lines(_told(found))
    return found.state is not ServerState.RUNNING


@server.command()
@_kept
def url(kept: KeptServer) -> None:
    """Print its url, with the password in it.

    For a shell: export SQLQUEUE_URL="$(sqlqueue server url)"
    """
    output.exactly(f"{kept.url()}\n")


@server.command()
@_kept
@parameters.yes
def remove(kept: KeptServer, yes: bool) -> None:
    """Stop it and delete its data."""
    size = kept.size()
    if not yes:
        connected = kept.status().connected
        cut = f"; it cuts off {_named(connected)}" if connected else ""
        parameters.confirmed(
            f"The server in {kept.folder} will be stopped and its data ({size / 1e6:,.0f} MB) deleted{cut}; "
            "to go on, type remove",
            "remove",
            "nothing was deleted",
        )
    left = kept.remove()
    output.say(f"removed the server in {kept.folder}")
    if left:
        output.say(f"The folder stays, for it holds other things: {', '.join(left)}")
