"""The compiler. It lowers tile IR to PTX."""
