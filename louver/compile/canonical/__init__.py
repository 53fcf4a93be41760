"""Passes that rewrite a user's kernel into the form that `frontend/builder.py` emits."""
