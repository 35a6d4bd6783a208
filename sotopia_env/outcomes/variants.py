"""Registry of protocols from other packages: variants of our kinds, by the name in a task's rules."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar, runtime_checkable

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError

GROUP = "sotopia.protocols"
"""Entry points of protocols; one is loaded when a task that names it is read."""

_VARIANTS: dict[str, type[Any]] = {}
_ProtocolT = TypeVar("_ProtocolT", bound=type[Any])


@runtime_checkable
class ProtocolClass(Protocol):
    """The members that a protocol class must have (:class:`~sotopia_env.outcomes.protocols.protocol.Protocol`)."""

    kind: str
    rule: str
    initial: Any
    menu: Any
    apply: Any
    outcome: Any


def register_protocol(name: str, protocol: _ProtocolT) -> _ProtocolT:
    """Registers a protocol for tasks whose rules say ``"variant": name``.

    Args:
        name: the name of the variant.
        protocol: a class that extends one of the package's protocols, and so has its ``kind``.

    Raises:
        InvalidValueError: ``protocol`` is not such a class, or another protocol has the name.
    """
    if not (isinstance(protocol, type) and isinstance(protocol, ProtocolClass)):
        expected = "a class that extends Agreement, Ballot, ClaimsProtocol or ChoicesProtocol"
        raise InvalidValueError(field="protocol", expected=expected, got=protocol)
    # The same class may register twice, since a module may be named in several ways.
    if not name or _VARIANTS.setdefault(name, protocol) is not protocol:
        raise InvalidValueError(field="protocol", expected="a name that no other protocol has", got=name)
    return protocol


def protocol_variant(name: str, kind: str) -> type[Any]:
    """Returns the protocol called ``name``.

    Raises:
        UnknownNameError: it is not registered, and no installed package has such an entry point.
        InvalidValueError: it is a variant of another kind.
    """
    # Only the entry point that a task names is loaded: it imports another package.
    entries = entry_points(group=GROUP) if name not in _VARIANTS else ()
    for entry in entries:
        if entry.name == name:
            register_protocol(name, entry.load())
    if name not in _VARIANTS:
        raise UnknownNameError(
            field="protocol.variant",
            got=name,
            valid=sorted({*_VARIANTS, *(entry.name for entry in entries)}),
            hint=f"variants are entry points {GROUP!r}, or are registered by an imported module",
        )
    if _VARIANTS[name].kind != kind:
        raise InvalidValueError(
            field="protocol.variant",
            expected=f"a variant of {kind!r}",
            got=name,
            hint=f"it is one of {_VARIANTS[name].kind!r}",
        )
    return _VARIANTS[name]
