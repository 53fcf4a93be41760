"""Ways into tile IR: library problems (`builder`)."""
