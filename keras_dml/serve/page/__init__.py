"""The page for people, and the endpoints that it asks."""
