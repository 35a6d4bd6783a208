"""Environments: PettingZoo's AEC and parallel forms, and Gymnasium for one seat."""
