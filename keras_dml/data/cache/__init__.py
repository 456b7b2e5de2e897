"""Caches of decoded images, in memory and on disk."""
