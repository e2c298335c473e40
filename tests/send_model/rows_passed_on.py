"""Configurations of rows that are passed on, and of plain messages."""

from tests.send_model.configuration import FAULTS, OWES, REFUSED_MEANWHILE, A, B, Configuration, row
from tests.send_model.world import Header

PASSED_ON = {
    "to another database": Configuration(rows=(A,), faults=FAULTS | {"crash": 2, "twin": 2}, budget=3),
    "to another database, owing results": Configuration(
        rows=(OWES,), faults=FAULTS | {"crash": 2, "twin": 2}, budget=3, audits=True
    ),
    "to another database: destination created": Configuration(
        rows=(A,),
        faults=FAULTS | {"create other:billing": 1},
        budget=3,
        tables=("home:shop",),
        inherent=REFUSED_MEANWHILE,
    ),
    "to another database: destination dropped": Configuration(
        rows=(A,),
        faults=FAULTS | {"drop other:billing": 1, "create other:billing": 1},
        budget=3,
        inherent=REFUSED_MEANWHILE,
    ),
    "two rows with one id to one place": Configuration(rows=(A, B._replace(owes=True)), faults=FAULTS),
    "two rows with one id within home": Configuration(
        rows=(row("pass", "shop"), row("pass", "shop", "b", owes=True)), faults={"crash": 1, "twin": 1}
    ),
    "two rows with one id to one place, missing": Configuration(
        rows=(A, B),
        faults={"twin": 1, "crash": 1, "create other:billing": 1},
        tables=("home:shop",),
        inherent=REFUSED_MEANWHILE,
    ),
    "two rows with one id to two places": Configuration(
        rows=(A, row("pass", "shop", "b")), faults={"crash": 1, "twin": 1}
    ),
    "two rows with one id to two places at home": Configuration(
        rows=(row("pass", "shop"), row("pass", "desk", "b")),
        faults={"crash": 1, "twin": 1},
        tables=("home:shop", "home:desk"),
    ),
    "within home: destination created or dropped": Configuration(
        rows=(row("pass", "shop"),),
        faults={"crash": 2, "twin": 1, "lost answer": 1, "drop home:shop": 1, "create home:shop": 1},
        budget=4,
        inherent=REFUSED_MEANWHILE,
    ),
    "within home, owing results: destination created or dropped": Configuration(
        rows=(row("pass", "shop", owes=True),),
        faults={"crash": 2, "twin": 1, "lost answer": 1, "drop home:shop": 1, "create home:shop": 1},
        budget=4,
        audits=True,
    ),
    "an event for both databases": Configuration(
        rows=(row("pass", "shop billing"),),
        faults=FAULTS | {"drop home:shop": 1, "create home:shop": 1, "drop other:billing": 1},
        budget=3,
        inherent=REFUSED_MEANWHILE,
    ),
    "an event for three databases": Configuration(
        rows=(row("pass", "shop billing crm"),),
        faults=FAULTS | {"down third": 1, "drop other:billing": 1},
        urls={"billing": "other", "crm": "third"},
        tables=("home:shop", "other:billing", "third:crm"),
    ),
    "an event: a copy is refused, and put back": Configuration(
        rows=(row("pass", "shop billing"),),
        faults={"crash": 1, "twin": 1, "drop other:billing": 1, "create other:billing": 1, "put back": 1},
        budget=3,
        inherent=REFUSED_MEANWHILE,
    ),
    "put back by ServiceControl: passed on": Configuration(
        rows=(A,),
        faults={"crash": 1, "twin": 1, "down": 1, "put back": 2, "create other:billing": 1},
        budget=3,
        tables=("home:shop",),
        inherent=REFUSED_MEANWHILE,
    ),
    "a stranger copies the header of a moved row": Configuration(
        rows=tuple(
            row("handle", "", name, name)._replace(header=Header("z", 1, "a"), hop=1) for name in ("a", "b")
        ),
        faults={"crash": 1},
    ),
}

PLAIN = {
    "a plain message, another database": Configuration(
        rows=(row("plain", "billing"),),
        faults={
            "crash": 1,
            "twin": 1,
            "lost answer": 1,
            "down": 1,
            "create other:billing": 1,
            "drop other:billing": 1,
        },
        budget=3,
        tables=("home:shop",),
        inherent=REFUSED_MEANWHILE,
    ),
    "a plain message, one database": Configuration(
        rows=(row("plain", "shop"),),
        faults={"crash": 1, "twin": 1, "lost answer": 1, "create home:shop": 1, "drop home:shop": 1},
        budget=4,
        tables=(),
    ),
    "a plain message, error queue in its database": Configuration(
        rows=(row("plain", "billing"),),
        faults={"crash": 1, "twin": 1, "lost answer": 1, "create other:billing": 1, "down": 1},
        budget=4,
        urls={"billing": "other", "error": "other"},
        tables=("other:error",),
    ),
    "a plain message, error queue in a third database": Configuration(
        rows=(row("plain", "billing"),),
        faults={"crash": 1, "twin": 1, "lost answer": 1, "create other:billing": 1, "down third": 1},
        budget=3,
        urls={"billing": "other", "error": "third"},
        tables=("third:error",),
        inherent=REFUSED_MEANWHILE,
    ),
}
