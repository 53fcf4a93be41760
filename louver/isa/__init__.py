"""The hardware: instructions (PTX text and meaning), maps of fragments and metadata, limits of targets."""
