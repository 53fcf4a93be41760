"""The happens-before check of schedule IR: what each role does, run on a model of barriers, stages and registers."""
