"""Product nest and schedule to schedule IR."""
