"""Which format for a product: measured, recorded or predicted times, bytes, costs and losses of each."""
