"""Accounting of tokens and dollars per call: the ledger of a run, and budgets that stop it."""
