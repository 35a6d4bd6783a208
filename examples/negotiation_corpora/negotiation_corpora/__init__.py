"""Readers of three negotiation corpora for ``sotopia import``: Deal or No Deal, CraigslistBargain and CaSiNo."""

from negotiation_corpora.casino import CASINO
from negotiation_corpora.craigslist import CRAIGSLIST
from negotiation_corpora.deal_or_no_deal import COCOA, TEXT

FORMATS = (TEXT, COCOA, *CRAIGSLIST, CASINO)
"""Named by the entry point in ``pyproject.toml``, in the order in which a record's form is tried."""
