"""The dialects: `tile` (the accepted operations of Triton, with sparse types) and `sched`."""
