"""The hardware: instructions with text and meaning together, maps of fragments and metadata, limits per target."""
