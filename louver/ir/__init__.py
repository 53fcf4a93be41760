"""The dialects: `tile` (Triton's operations that we accept, with sparse types) and `sched`."""
