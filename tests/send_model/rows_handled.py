"""Configurations of rows that a function handles, and of queues for errors and results elsewhere."""

from tests.send_model.configuration import (
    DOWN,
    FAULTS,
    OWES,
    REFUSED_MEANWHILE,
    TWO_TRIES,
    A,
    B,
    Configuration,
    forgotten,
    row,
)

HANDLED = {
    "a function: answers differ, other database down": Configuration(
        rows=(row("handle", owes=True),), faults=FAULTS, answers=(("shop",), ("billing",), None), audits=True
    ),
    "a function: destination created": Configuration(
        rows=(row("handle"),),
        faults={"crash": 1, "twin": 1, "create other:billing": 1, "down": 1},
        budget=3,
        answers=(("billing", "shop"), ("shop",)),
        tables=("home:shop",),
        inherent=REFUSED_MEANWHILE,
    ),
    "a function: destination at home created or dropped": Configuration(
        rows=(row("handle"),),
        faults={"crash": 1, "twin": 1, "create home:shop": 1, "drop home:shop": 1},
        budget=3,
        answers=(("shop",),),
    ),
    "a function: its message refused, put back": Configuration(
        rows=(row("handle"),),
        faults={"crash": 1, "twin": 2, "create other:billing": 1, "put back": 1},
        budget=3,
        answers=(("billing",),),
        tables=("home:shop",),
        audits=True,
        inherent=REFUSED_MEANWHILE,
    ),
    "a function: put back by ServiceControl": Configuration(
        rows=(row("handle"),),
        faults={"crash": 1, "twin": 1, "put back": 2, "lost answer": 1},
        budget=3,
        answers=(("shop",), None),
    ),
    "a function: two rows with one id": Configuration(
        rows=(row("handle", owes=True), row("handle", root="b", owes=True)),
        faults={"crash": 1, "twin": 1},
        answers=(("shop",), None),
        slow=True,
    ),
    "a function: two rows with one id, one answer": Configuration(
        rows=(row("handle", owes=True), row("handle", root="b", owes=True)),
        faults={"crash": 1},
        answers=(("shop",),),
    ),
    "a function: to its own queue with all headers": Configuration(
        rows=(row("handle"),), faults={"crash": 1}, budget=1, answers=(("queue",),), fails_first=True
    ),
    "poison": Configuration(
        rows=(row("poison", owes=True),), faults={"crash": 2, "twin": 1, "put back": 1}, budget=3
    ),
    "a .NET endpoint moves what is delayed": Configuration(
        rows=(row("handle"),),
        faults={"foreign mover": 2, "crash": 1, "twin": 1, "down": 1},
        budget=3,
        answers=(("billing",), None),
        inherent={"delivered and in error": (TWO_TRIES, DOWN, frozenset({"foreign mover"}))},
    ),
}

CENTRAL = {
    "central error queue": Configuration(
        rows=(row("handle", owes=True),),
        faults={"put back": 2, "lost answer": 1, "crash": 1},
        answers=(("shop",), None),
        retries=0,
        urls={"error": "other"},
        tables=("home:shop", "other:error"),
    ),
    "central error queue, down": Configuration(
        rows=(row("handle"),),
        faults={"twin": 1, "lost answer": 1, "down": 1, "put back": 1},
        budget=3,
        answers=(None,),
        retries=0,
        urls={"error": "other"},
        tables=("other:error",),
    ),
    "central error queue, down for too long": Configuration(
        rows=(row("handle"),),
        faults={"down": 1, "overdue": 1, "put back": 1},
        budget=3,
        answers=(None,),
        retries=0,
        urls={"error": "other"},
        tables=("other:error",),
    ),
    "central error queue in the database that is down for too long": Configuration(
        rows=(row("pass", "billing"),),
        faults={"down": 1, "overdue": 1, "put back": 1, "crash": 1},
        budget=4,
        urls={"billing": "other", "error": "other"},
        tables=("other:billing", "other:error"),
        inherent={"delivered and in error": (TWO_TRIES, DOWN, frozenset({"overdue"}))},
    ),
    "central error queue of passed-on rows": Configuration(
        rows=(A, B),
        faults={"crash": 1, "down third": 1, "lost answer": 1},
        urls={"billing": "other", "error": "third"},
        tables=("third:error",),
    ),
    "the acknowledgement queue is missing": Configuration(
        rows=(row("handle", owes=True),),
        faults={"crash": 1},
        urls={"ack": "other"},
        tables=(),
        inherent={"not acknowledged": ()},
    ),
    "central audit and acknowledgement queues: passed on": Configuration(
        rows=(OWES,),
        faults={"crash": 1, "twin": 1, "lost answer": 1, "down third": 1},
        audits=True,
        urls={"billing": "other", "ack": "third", "audit": "third"},
        tables=("other:billing", "third:ack", "third:audit"),
    ),
    "central audit and acknowledgement queues: a function": Configuration(
        rows=(row("handle", owes=True),),
        faults={"crash": 1, "twin": 1, "lost answer": 1, "down": 1},
        urls={"ack": "other", "audit": "other"},
        tables=("other:ack", "other:audit"),
    ),
}

ATOMIC = {
    "atomic: passed on within home": Configuration(
        rows=(row("pass", "shop", owes=True),),
        faults={"crash": 2, "twin": 1, "lag home": 1},
        budget=3,
        audits=True,
        atomic=True,
    ),
    "atomic: to another database": Configuration(
        rows=(A,),
        faults={"crash": 1, "twin": 1, "lost answer": 1, "down": 1, "lag home": 1},
        budget=3,
        atomic=True,
    ),
    "atomic: two rows with one id": Configuration(
        rows=(row("pass", "shop"), row("pass", "shop", "b")), faults={"crash": 1, "twin": 1}, atomic=True
    ),
    "atomic: a function, two rows with one id": Configuration(
        rows=(row("handle", owes=True), row("handle", root="b", owes=True)),
        faults={"crash": 1},
        answers=(("shop",), None),
        atomic=True,
    ),
    "atomic: a function, answers differ, another database": Configuration(
        rows=(row("handle"),),
        faults={"crash": 1, "twin": 1, "down": 1, "lag home": 1},
        answers=(("shop",), ("billing",), None),
        atomic=True,
        inherent=forgotten("delivered twice", "the answer of another try"),
    ),
    "atomic: a function, put back": Configuration(
        rows=(row("handle"),),
        faults={"crash": 1, "twin": 1, "put back": 2},
        budget=3,
        answers=(("shop",), None),
        atomic=True,
    ),
}
