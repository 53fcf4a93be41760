"""Passes that bring the operands of a loop's dots: copies ahead into a ring, operands computed ahead."""
