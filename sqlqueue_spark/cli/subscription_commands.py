"""The commands about subscriptions, over :mod:`sqlqueue_spark.administration.event_subscriptions`."""

import click

from sqlqueue_spark.administration import event_subscriptions
from sqlqueue_spark.cli import output, parameters
from sqlqueue_spark.cli.text_table import TextTable
from sqlqueue_spark.options import ConnectionOptions

_events = parameters.argument("events", "EVENT...", parameters.some_text, nargs=-1, required=True)
_endpoint = parameters.option(
    "--endpoint NAME", "The subscribing endpoint; default: the name of the queue.", parameters.endpoint_name
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
    """Subscribe a queue to events. Publishers find it in the table SubscriptionRouting.

    An EVENT is the full name of a type, for example Shop.OrderPlaced. To get all events of a base type,
    subscribe to the base type.
    """
    for each, before, changed in event_subscriptions.subscribe(
        options, queue, events, endpoint, create=create
    ):
        if not changed:
            output.say(f"{each.endpoint} had subscribed to {each.topic} already, as {each.address}")
        else:
            instead = "" if before is None else f" in the place of {before}"
            output.say(f"{each.endpoint} has subscribed to {each.topic}, as {each.address}{instead}")


@click.command()
@parameters.queue
@_events
@parameters.connected
@_endpoint
def unsubscribe(
    options: ConnectionOptions, queue: str, events: tuple[str, ...], endpoint: str | None
) -> bool:
    """End subscriptions of a queue, which need not exist. Exit code 1 when another queue has one of them."""
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
    return others


@click.command()
@parameters.argument("event", "[EVENT]", parameters.some_text, required=False)
@parameters.connected
@_create
@parameters.as_json
def subscriptions(options: ConnectionOptions, event: str | None, create: bool, json_: bool) -> None:
    """Show who has subscribed to an event, or to any: type, endpoint, and the address of its queue."""
    found = event_subscriptions.subscriptions(options, event, create=create)
    if json_:
        output.lines(output.as_json(each._asdict()) for each in found)
    elif found:
        rows = [(each.topic, each.endpoint, each.address) for each in found]
        output.lines(TextTable("event", "endpoint", "queue").lines(rows))
    else:
        output.say(f"no endpoint has subscribed{'' if event is None else f' to {event}'}")
