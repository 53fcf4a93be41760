"""The compiler: tile IR to PTX."""
