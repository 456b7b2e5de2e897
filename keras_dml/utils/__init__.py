"""Helpers that every part of the package may use, and that use no part."""
