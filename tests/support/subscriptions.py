"""The table of subscriptions as .NET endpoints make it and write it, by plain SQL."""

from tests.support.engines import Engine, QueueTable

_CREATE = {
    "postgresql": (
        'CREATE TABLE "SubscriptionRouting" (queueaddress varchar(200) NOT NULL, '
        "endpoint varchar(200) NOT NULL, "
        "topic varchar(200) NOT NULL, PRIMARY KEY (endpoint, topic))"
    ),
    "sqlserver": (
        "CREATE TABLE [SubscriptionRouting] (QueueAddress nvarchar(200) NOT NULL, "
        "Endpoint nvarchar(200) NOT NULL, Topic nvarchar(200) NOT NULL, PRIMARY KEY "
        "CLUSTERED (Endpoint, Topic))"
    ),
}
_TABLE = {"postgresql": '"SubscriptionRouting"', "sqlserver": "[SubscriptionRouting]"}


class SubscriptionRows:
    """The rows of the table in the default schema."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._table = _TABLE[engine.name]

    def create(self) -> "SubscriptionRows":
        self._engine.execute(_CREATE[self._engine.name])
        return self

    def address(self, queue: QueueTable) -> str:
        """A queue's address as the transport of the engine writes it."""
        if self._engine.name == "postgresql":
            return ".".join('"' + name.replace('"', '""') + '"' for name in (queue.schema, queue.name))
        (database,) = self._engine.fetch("SELECT DB_NAME()")[0]
        return f"{queue.name}@[{queue.schema}]@[{database}]"

    def add(self, queue: QueueTable | str | None, *topics: str, endpoint: str | None = None) -> None:
        """Let a queue, or the subscriber at this address, have the events of these types."""
        address = self.address(queue) if isinstance(queue, QueueTable) else queue
        name = endpoint or (queue.name if isinstance(queue, QueueTable) else queue)
        for topic in topics:
            texts = (None if each is None else each.replace("'", "''") for each in (address, name, topic))
            values = ", ".join("NULL" if each is None else f"'{each}'" for each in texts)
            self._engine.execute(f"INSERT INTO {self._table} VALUES ({values})")

    def remove(self, queue: QueueTable) -> None:
        address = self.address(queue).replace("'", "''")
        self._engine.execute(f"DELETE FROM {self._table} WHERE QueueAddress = '{address}'")

    def rows(self) -> list[tuple[str, str, str]]:
        """Address, endpoint and type of each row."""
        found = self._engine.fetch(f"SELECT QueueAddress, Endpoint, Topic FROM {self._table}")
        return sorted((str(address), str(endpoint), str(topic)) for address, endpoint, topic in found)
