"""`streamkeeper asl`: checking, running and drawing a definition that somebody is writing."""
