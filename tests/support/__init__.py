"""The parts that tests of several rooms share."""
