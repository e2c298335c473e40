"""The rules of sending, one switch each, so that a test can take a rule out and see what notices."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the protocol does so that nothing is lost and nothing sent twice."""

    # Outcomes of received rows, at home
    origin_key: bool = True  # a row whose origin is known sends nothing and adds nothing
    id_key: bool = True  # done adds the message id of a handled row; a known id was handled as another row
    known_id_acknowledges: bool = True  # a row whose id is known sends the acknowledgement that it owes
    one_transaction: bool = True  # the acknowledgement is committed with the outcome
    results_write_origin: bool = True  # a passed-on row that owes results, or lost a copy, writes its origin
    count_outcomes: bool = True  # a batch that lacks an outcome is not logged
    settling_asks_again: bool = True  # the atomic mode looks for keys again when it settles
    stored_owes_nothing: bool = (
        True  # a row that we stored has no acknowledgement, audit copy or key of its id
    )
    # Sends
    send_key: bool = True  # the outbox of a database knows what was sent to it
    key_names_place: bool = True  # what is passed on is known by its id and its final place
    ask_home: bool = True  # before a row is sent to another database, home is asked for its origin
    ask_before_failed: bool = True  # before failed is written, the outbox is asked that would know the send
    ask_marked: bool = True  # also for a message that was marked as refused in an earlier transaction
    store_answers: bool = True  # what a function answers for another database is stored at home
    error_key: bool = (
        True  # an error row in another database than its send has a key; each try looks for both
    )
    # Rows that we move
    origin_header: bool = True  # a row that we move carries its first origin ...
    count_moves: bool = True  # ... and the number of its moves: both are its key
    header_names_row: bool = True  # the header counts only in the row whose Id it names
    header_ends: bool = True  # neither an error row nor a message of ours has the header
    ids_without_moves: bool = True  # ids of what a function sends are made of the origin alone
    failed_by_origin: bool = True  # another database knows an error row by origin and moves of what failed
    overdue_only_while_down: bool = True  # a row whose time is over fails only while its database is down
    results_wait: bool = True  # rows for error, audit and acknowledgement queues are never given up
    missing_ack_is_dropped: bool = True  # an acknowledgement whose queue is missing holds up no batch
    # Recovery and upkeep
    recovery_asks_outbox: bool = True  # after a loss only rows that home's outbox knows are deleted
    same_urls: bool = True  # no start under other databases while a message may go out again
    urls_wait_for_given_back: bool = True  # that holds for rows that waited or that recovery gave back
    cleanup_waits: bool = True  # no outbox is cleaned while a message may be sent again
    cleanup_waits_for_given_back: bool = True  # that holds for rows that waited or that recovery gave back
    # Not taken: an application lock at home, which a try shares from its look to its last send. A passed-on
    # row fails only under the whole lock, after its origin and its sends were asked for again.
    failed_alone: bool = False


NAMES = tuple(each.name for each in fields(Rules) if each.default)


def without(*names: str) -> Rules:
    return Rules(**dict.fromkeys(names, False))
