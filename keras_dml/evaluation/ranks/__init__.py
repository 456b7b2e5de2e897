"""Exact ranks: what is retrieved before what, decided in float64."""
