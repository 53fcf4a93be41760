"""Plans how a kernel runs: product nest and schedule, or encodings, units and feeds."""
