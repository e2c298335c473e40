"""The headers that name the host on which an endpoint has processed a message; ServicePulse shows them.

Format: https://docs.particular.net/nservicebus/hosting/override-hostid. A .NET endpoint makes the id of its
machine and its path, or of two names. Ours is made of two names: those of the endpoint and the machine.
"""

import functools
import socket
import uuid

HOST_ID, HOST_NAME = "$.diagnostics.hostid", "$.diagnostics.hostdisplayname"
PROCESSING_MACHINE = "NServiceBus.ProcessingMachine"


def host_headers(endpoint: str) -> dict[str, str]:
    """The headers of an endpoint on this machine.

    The id has 32 hex digits and is the same after each restart: the UUID of version 5 of ``endpoint@machine``
    in the namespace of DNS.
    """
    host = uuid.uuid5(uuid.NAMESPACE_DNS, f"{endpoint}@{machine()}").hex
    return {HOST_ID: host, HOST_NAME: machine(), PROCESSING_MACHINE: machine()}


@functools.cache
def machine() -> str:
    return socket.gethostname()
