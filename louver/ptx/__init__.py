"""PTX modules as light objects, their text, and the assembler."""
