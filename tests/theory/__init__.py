"""Tests of the formulas: the numbers of the source documents, properties, and simulations."""
