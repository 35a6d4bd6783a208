"""Spending: tokens and dollars per call, their ledger, and the budgets that stop a run."""
