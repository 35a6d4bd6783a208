"""The function that makes a task's protocol; a protocol's module is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.issues import Seats
from sotopia_env.outcomes.protocols.protocol import AnyProtocol
from sotopia_env.outcomes.protocols.statements import WithFacts
from sotopia_env.outcomes.specification import OutcomeSpec
from sotopia_env.outcomes.variants import protocol_variant

_CLASSES: Mapping[str, str] = {
    "agreement": "Agreement",
    "ballot": "Ballot",
    "claims": "ClaimsProtocol",
    "choices": "ChoicesProtocol",
    "roles": "RolesProtocol",
}
"""The class of each kind of rules, in the module that has the name of the kind."""


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
    kind: type[AnyProtocol]
    if rules.variant:
        kind = protocol_variant(rules.variant, rules.kind)
    else:
        kind = getattr(importlib.import_module(f"sotopia_env.outcomes.protocols.{rules.kind}"), _CLASSES[rules.kind])
    protocol = kind(spec.resolved(facts), names)
    return protocol if facts is None else WithFacts(protocol, facts)
