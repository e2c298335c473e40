"""Refuses a checkpoint that belongs to another queue, to several queues, or to another database."""

import json

from sqlqueue_spark.errors import ConfigurationError
from sqlqueue_spark.messages.addresses import Table
from sqlqueue_spark.options import SourceOptions
from sqlqueue_spark.receive.claiming.connection_pool import QueueSession
from sqlqueue_spark.receive.offset import Offset
from sqlqueue_spark.tables.database_facts import database


def check_belongs(offset: Offset, session: QueueSession, options: SourceOptions) -> None:
    """Refuse a checkpoint that does not belong to a stream.

    A batch over several queues is finished in all its queues, also those that are no longer read.

    :raises ConfigurationError: the offset was written for another queue or database.
    """
    if not session.several:
        if offset.joint:
            raise ConfigurationError(
                f"The checkpoint belongs to a stream over several queues, not to {session.name} alone; "
                "give the option queues, which may also list one, like "
                f"{json.dumps([options.queue])}."
            )
        if offset.queue != session.name:
            raise ConfigurationError(
                f"The checkpoint belongs to the queue {offset.queue}, not to {session.name}; "
                "give every queue a checkpoint of its own, or correct the option queue; several sources of a "
                "query keep their order."
            )
        return
    own = database(session.connection)
    elsewhere = {Table.from_text(part.queue).catalog for part in offset.parts} - {own}
    if elsewhere and not session.connection.dialect.reaches_other_databases:
        raise ConfigurationError(
            f"The checkpoint belongs to queues of the database {elsewhere.pop()}, and the url leads to "
            f"{own}; correct the option url, or give a new checkpoint folder "
            "(a state that the query keeps is lost)."
        )
    if not (offset.joint or session.reads(offset.queue) or session.named(offset.queue) is None):
        raise ConfigurationError(
            f"The checkpoint belongs to the queue {offset.queue}, which is not among those of this "
            f"stream ({session.name}); add it for the first start, or give a new checkpoint folder "
            "(a state that the query keeps is lost)."
        )
