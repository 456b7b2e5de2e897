"""Ensembles of learners that know nothing of each other."""
