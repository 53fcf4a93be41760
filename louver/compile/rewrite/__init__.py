"""Helpers for passes that rewrite tile IR."""
