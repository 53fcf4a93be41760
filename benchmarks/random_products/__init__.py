"""Many random products, each compared with float64: what is drawn, what is expected of it, and how it is run."""
