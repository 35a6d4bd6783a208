"""Readers of negotiation corpora for ``sotopia import``: corpora of people's dialogues, and games of models."""

from negotiation_corpora.arena import ARENA
from negotiation_corpora.casino import CASINO
from negotiation_corpora.craigslist import CRAIGSLIST
from negotiation_corpora.deal_or_no_deal import COCOA, TEXT
from negotiation_corpora.deliberation import DELIBERATION

FORMATS = (TEXT, COCOA, *CRAIGSLIST, CASINO, ARENA, DELIBERATION)
"""Named by the entry point in ``pyproject.toml``."""
