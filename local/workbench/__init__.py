"""`streamkeeper asl`: checks, runs and draws a definition that somebody is writing."""
