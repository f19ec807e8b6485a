"""What can be predicted, a folder each: what its file may say, its plan, its Program, its report."""
