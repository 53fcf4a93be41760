"""The compiler's steps, tile IR to PTX: one file each."""
