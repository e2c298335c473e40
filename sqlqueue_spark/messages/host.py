"""The headers that say on which host an endpoint has processed a message; ServicePulse shows failures and endpoints by them.

Format: https://docs.particular.net/nservicebus/hosting/override-hostid. A .NET endpoint makes the id of its machine and path, or of two
names that it is given. Ours is made of two names: the endpoint and the machine.
"""

from __future__ import annotations

import functools
import socket
import uuid

HOST_ID, HOST_NAME = "$.diagnostics.hostid", "$.diagnostics.hostdisplayname"
PROCESSING_MACHINE = "NServiceBus.ProcessingMachine"
#: What an earlier host has written, and a later one writes anew.
HOST = (HOST_ID, HOST_NAME, PROCESSING_MACHINE)


def host_headers(endpoint: str) -> dict[str, str]:
    """The headers of an endpoint on this machine.

    The id is 32 hex digits: the UUID of version 5 of ``endpoint@machine`` in the namespace of DNS, the same after each restart.
    """
    host = uuid.uuid5(uuid.NAMESPACE_DNS, f"{endpoint}@{machine()}").hex
    return {HOST_ID: host, HOST_NAME: machine(), PROCESSING_MACHINE: machine()}


@functools.cache
def machine() -> str:
    """The name of this machine."""
    return socket.gethostname()
