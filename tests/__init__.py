"""Tests lie in the rooms of what they test; kinds of failure that cross rooms have their own."""
