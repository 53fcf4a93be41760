"""Passes that bring the operands of a loop's dots early: copies into a ring, and operands computed a step ahead."""
