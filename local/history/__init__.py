"""Analyses the history of any execution, in AWS's format: lanes, gaps, limits and costs."""
