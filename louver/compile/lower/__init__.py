"""Lowers schedule IR and encoded tile IR to PTX."""
