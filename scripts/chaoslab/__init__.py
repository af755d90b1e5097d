"""Runs of the pool in which processes are killed and stopped at random, and what became of them."""
