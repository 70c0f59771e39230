"""Looks at the history of any execution, as AWS answers it: lanes, gaps, limits and costs."""
