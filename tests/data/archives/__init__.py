"""Tests of the archives, on small ones of exactly their formats."""
