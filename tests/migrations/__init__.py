"""Tests of the tables in guarded databases."""
