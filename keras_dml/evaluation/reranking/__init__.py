"""Re-ranking: better rankings from the neighbors of neighbors."""
