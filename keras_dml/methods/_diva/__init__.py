"""Diverse visual feature aggregation (DiVA, Milbich et al., 2020)."""
