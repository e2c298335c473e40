"""The commands about subscriptions, each a few lines over :mod:`sqlqueue_spark.administration.event_subscriptions`."""

from __future__ import annotations

import click

from sqlqueue_spark.administration import event_subscriptions
from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.options import ConnectionOptions

_events = click.argument("events", metavar="EVENT...", nargs=-1, required=True, type=parameters.some_text)
_endpoint = click.option(
    "--endpoint",
    type=parameters.endpoint_name,
    metavar="NAME",
    help="The endpoint that subscribes; else it is called as the queue is.",
)
_create = click.option(
    "--create", is_flag=True, help="Create the table SubscriptionRouting of the schema if it is not there."
)


@click.command()
@parameters.queue
@_events
@parameters.connected
@_endpoint
@_create
def subscribe(
    options: ConnectionOptions, queue: str, events: tuple[str, ...], endpoint: str | None, create: bool
) -> None:
    """Let a queue have the events of these types, which publishers find by the table SubscriptionRouting.

    An EVENT is the full name of a type, such as Shop.OrderPlaced. Who is to have the events of a base type subscribes to that.
    """
    for each, before, changed in event_subscriptions.subscribe(
        options, queue, events, endpoint, create=create
    ):
        if not changed:
            output.say(f"{each.endpoint} had subscribed to {each.topic} already, as {each.address}")
        elif before is None:
            output.say(f"{each.endpoint} has subscribed to {each.topic}, as {each.address}")
        else:
            output.say(
                f"{each.endpoint} has subscribed to {each.topic}, as {each.address} in the place of {before}"
            )


@click.command()
@parameters.queue
@_events
@parameters.connected
@_endpoint
@click.pass_context
def unsubscribe(
    ctx: click.Context, options: ConnectionOptions, queue: str, events: tuple[str, ...], endpoint: str | None
) -> None:
    """End subscriptions of a queue, which need not be there any more; exit code 1 where another queue has one of them."""
    others = False
    for each, before, changed in event_subscriptions.unsubscribe(options, queue, events, endpoint):
        if changed:
            output.say(f"{each.endpoint} is no longer subscribed to {each.topic}")
        elif before is None:
            output.say(f"{each.endpoint} was not subscribed to {each.topic}")
        else:
            others = True
            output.say(
                f"{each.endpoint} has subscribed to {each.topic} as {before}, not as {queue}: that stays"
            )
    ctx.exit(1 if others else 0)


@click.command()
@click.argument("event", metavar="[EVENT]", required=False, type=parameters.some_text)
@parameters.connected
@_create
@parameters.as_json
def subscriptions(options: ConnectionOptions, event: str | None, create: bool, json_: bool) -> None:
    """Show who has subscribed to an event, or to any: type, endpoint, and the address of its queue."""
    found = event_subscriptions.subscriptions(options, event, create=create)
    if json_:
        for each in found:
            click.echo(output.as_json(each._asdict()))
    elif found:
        rows = [tuple(map(output.printable, (each.topic, each.endpoint, each.address))) for each in found]
        for line in output.table(("event", "endpoint", "queue"), rows, names=(0,)):
            click.echo(line)
    else:
        output.say(f"nobody has subscribed{'' if event is None else f' to {event}'}")
