"""Plans how a kernel runs: product nest and schedule of products; encodings, units and feeds of register tiles."""
