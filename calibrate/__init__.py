"""Measure and execute on real machines (torch). The Profile file is the contract with `simulator`."""
