"""Runs: many episodes planned, played, resumed, evaluated and forecast."""
