"""Helpers of passes that change tile IR."""
