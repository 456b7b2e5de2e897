"""Attentive grouping (Xu et al., 2020)."""
