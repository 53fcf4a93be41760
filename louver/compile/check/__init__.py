"""The happens-before check of schedule IR: runs each role on a model of barriers, stages and registers."""
