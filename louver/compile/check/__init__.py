"""The happens-before check of schedule IR. It runs each role on a model of barriers, stages and registers."""
