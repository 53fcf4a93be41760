"""Many random products, each compared with float64: cases, expected results, and the runs."""
