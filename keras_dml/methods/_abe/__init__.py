"""Attention-based ensemble (ABE, Kim et al., 2018)."""
