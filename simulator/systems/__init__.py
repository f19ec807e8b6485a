"""The systems that can be predicted, a folder each: scenario file, plan, Program, report."""
