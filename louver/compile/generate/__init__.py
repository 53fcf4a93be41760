"""Generates schedule IR from a product nest and a schedule."""
