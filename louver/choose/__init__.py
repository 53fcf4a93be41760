"""Chooses how a kernel runs: schedules, tiles, cuts of K and warps, by predicted clocks and measured tables."""
