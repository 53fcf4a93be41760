"""Passes that replace each sparse tensor by its values and its metadata."""
