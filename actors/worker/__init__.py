"""A worker: the keeper, and what it is made of."""
