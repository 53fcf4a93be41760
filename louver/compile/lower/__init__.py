"""Schedule IR and encoded tile IR to PTX."""
