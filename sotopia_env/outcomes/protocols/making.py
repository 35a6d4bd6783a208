"""The function that makes a task's protocol."""

from __future__ import annotations

from collections.abc import Mapping

from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.issues import Seats
from sotopia_env.outcomes.protocols.agreement import Agreement
from sotopia_env.outcomes.protocols.ballot import Ballot
from sotopia_env.outcomes.protocols.claims import ClaimsProtocol
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from sotopia_env.outcomes.protocols.statements import WithFacts
from sotopia_env.outcomes.specification import OutcomeSpec
from sotopia_env.outcomes.variants import protocol_variant

PROTOCOLS: Mapping[str, type[AnyProtocol]] = {kind.kind: kind for kind in (Agreement, Ballot, ClaimsProtocol)}


def make_protocol(spec: OutcomeSpec, names: Seats, facts: Facts | None = None) -> AnyProtocol:
    """Returns the protocol of a task; it is shared by all episodes of the task.

    Args:
        spec: the task's outcome.
        names: agent id to name, in seat order.
        facts: the task's facts.

    Raises:
        InvalidValueError: ``names`` has another number of seats than ``spec``.
    """
    rules = spec.protocol
    kind: type[AnyProtocol] = PROTOCOLS[rules.kind]
    if rules.variant:
        kind = protocol_variant(rules.variant, rules.kind)
    protocol = kind(spec.resolved(facts), names)
    return protocol if facts is None else WithFacts(protocol, facts)
