"""Configurations in which a server forgets commits, time passes, outboxes are cleaned and urls change."""

from tests.send_model.configuration import (
    DOWN,
    OWES,
    REFUSED_MEANWHILE,
    TWO_TRIES,
    A,
    Configuration,
    forgotten,
    row,
)

FORGETS = {
    "home forgets: within home": Configuration(
        rows=(row("pass", "shop", owes=True),),
        faults={"lag home": 1, "crash": 1, "twin": 1, "lost answer": 1},
        budget=3,
    ),
    "home forgets: two rows": Configuration(
        rows=(row("pass", "shop"), row("pass", "shop", "b", "Y")), faults={"lag home": 1, "crash": 1}
    ),
    "home forgets: to another database": Configuration(
        rows=(OWES,),
        faults={"lag home": 1, "crash": 1, "twin": 1, "down": 1, "create other:billing": 1},
        budget=3,
        tables=("home:shop",),
        inherent=REFUSED_MEANWHILE
        | forgotten("in error twice", "done and in error", "acknowledged too often", also=(DOWN,)),
    ),
    "home forgets: a function, within home": Configuration(
        rows=(row("handle", owes=True),),
        faults={"lag home": 1, "crash": 1, "twin": 1},
        budget=3,
        answers=(("shop",), None),
        inherent=forgotten("acknowledged too often", "done and in error"),
    ),
    "home forgets: a function, one answer, another database": Configuration(
        rows=(row("handle"),),
        faults={"lag home": 1, "crash": 1, "twin": 1},
        budget=3,
        answers=(("billing",),),
        fails_first=True,
        slow=True,
    ),
    "home forgets: a function fails first, another database": Configuration(
        rows=(row("handle"),), faults={"lag home": 1}, budget=1, answers=(("billing",),), fails_first=True
    ),
    "home forgets: a function fails or not, another database": Configuration(
        rows=(row("handle"),),
        faults={"lag home": 1},
        budget=1,
        answers=(("billing",), None),
        inherent=forgotten("delivered twice", "done and in error"),
    ),
    "home forgets: answers differ, another database": Configuration(
        rows=(row("handle"),),
        faults={"lag home": 1},
        budget=1,
        answers=(("billing",), ("shop",)),
        inherent=forgotten("delivered twice", "the answer of another try"),
    ),
    "home forgets that a row was put back, and sent": Configuration(
        rows=(A,),
        faults={"lag home": 1, "put back": 1, "create other:billing": 1},
        budget=3,
        tables=("home:shop",),
        inherent=forgotten(
            "acknowledged too often",
            "delivered and in error",
            "done and in error",
            "in error twice",
            also=(frozenset({"put back"}),),
        ),
    ),
    "home forgets: central error queue": Configuration(
        rows=(row("handle"),),
        faults={"lag home": 1, "crash": 1},
        answers=(None,),
        urls={"error": "other"},
        tables=("other:error",),
    ),
    "home forgets, then outboxes are cleaned": Configuration(
        rows=(A,),
        faults={"lag home": 1, "clean home": 1, "clean other": 1},
        budget=3,
        inherent=forgotten("delivered twice", also=(frozenset({"clean other"}),)),
    ),
    "home forgets, then urls change": Configuration(
        rows=(A,),
        faults={"lag home": 1, "url": 1},
        tables=("home:billing", "other:billing"),
        inherent=forgotten("delivered twice", also=(frozenset({"url"}),)),
    ),
    "the other database forgets": Configuration(
        rows=(A,),
        faults={"lag other": 1, "crash": 1},
        inherent={"lost": (frozenset({"lag other"}),)},
    ),
}

TIME = {
    "waits too long": Configuration(
        rows=(A,),
        faults={"down": 1, "overdue": 1, "lost answer": 1, "put back": 1},
        budget=3,
        inherent={"delivered and in error": (DOWN, frozenset({"overdue"}), frozenset({"lost answer"}))},
    ),
    "waits too long, never sent before": Configuration(
        rows=(A,), faults={"down": 2, "overdue": 1, "put back": 1, "foreign mover": 1}, budget=3
    ),
    "an event waits too long: one copy has arrived": Configuration(
        rows=(row("pass", "billing crm"),),
        faults={"down third": 1, "overdue": 1, "put back": 1, "crash": 1},
        budget=4,
        urls={"billing": "other", "crm": "third"},
        tables=("other:billing", "third:crm"),
        inherent={"delivered and in error": (frozenset({"down third"}), frozenset({"overdue"}))},
    ),
    "its time is over when its database is up again": Configuration(
        rows=(A,), faults={"down": 1, "overdue late": 1, "lost answer": 1}, budget=3
    ),
    "outboxes cleaned": Configuration(
        rows=(A,),
        faults={"clean home": 1, "clean other": 1, "crash": 1, "down": 1, "lost answer": 1},
        budget=4,
    ),
    "outboxes cleaned: a function": Configuration(
        rows=(row("handle"),),
        faults={"clean home": 1, "clean other": 1, "crash": 1, "down": 1, "lost answer": 1},
        budget=4,
        answers=(("billing", "shop"), None),
    ),
    "urls change": Configuration(
        rows=(A,),
        faults={"url": 2, "crash": 1, "down": 1, "lost answer": 1},
        budget=4,
        tables=("home:shop", "home:billing", "other:billing"),
        inherent={"delivered twice": (TWO_TRIES, frozenset({"url"}), DOWN)},
    ),
}
