"""The addresses that send requests, with limits for each: open connections, and requests or messages in a period."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

_CALLERS = 10_000
"""The maximum number of callers whose rates are remembered."""
_ONE_HOST = 64
"""Bits of an IPv6 address that name a subnet: one caller chooses the other 64 bits at will."""


@lru_cache(maxsize=_CALLERS)
def caller_of(address: str) -> str:
    """Returns the name under which the requests of an address are counted: an IPv4 address or an IPv6 subnet."""
    try:
        parsed = ip_address(address)
    except ValueError:  # a UNIX socket, or the client of a test
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((int(parsed), _ONE_HOST), strict=False))
    return str(parsed)


class Rates:
    """Token buckets, each of which refills at the allowed rate and holds at most one period's worth."""

    def __init__(self) -> None:
        """Creates full buckets."""
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def allows(self, key: Hashable, number: int, seconds: float) -> bool:
        """Counts a use of ``key`` and returns whether at most ``number`` of them fell into ``seconds``."""
        now = time.monotonic()
        tokens, before = self._buckets.pop(key, (float(number), now))
        tokens = min(float(number), tokens + (now - before) * number / seconds)
        self._buckets[key] = (max(tokens - 1.0, 0.0), now)
        if len(self._buckets) > _CALLERS:
            # The least recently used: `pop` and insertion move a caller to the end.
            self._buckets.popitem(last=False)
        return tokens >= 1.0


class OpenConnections:
    """The open connections of each caller."""

    def __init__(self, most: int, exempt: Iterable[str] = ()) -> None:
        """Creates an empty list.

        Args:
            most: the maximum number of open connections of one caller.
            exempt: addresses or networks without a limit, such as a proxy that all requests come through.
        """
        self._most = most
        self._exempt = [ip_network(text, strict=False) for text in exempt]
        self._open: defaultdict[str, set[Hashable]] = defaultdict(set)

    def enter(self, address: str, connection: Hashable) -> bool:
        """Counts a connection and returns whether it may stay; one that is counted already may."""
        caller = caller_of(address)
        own = self._open[caller]
        if connection not in own and len(own) >= self._most and not self._is_exempt(address):
            return False
        own.add(connection)
        return True

    def leave(self, address: str, connection: Hashable) -> None:
        """Forgets a connection."""
        caller = caller_of(address)
        self._open[caller].discard(connection)
        if not self._open[caller]:
            del self._open[caller]

    def _is_exempt(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._exempt)
