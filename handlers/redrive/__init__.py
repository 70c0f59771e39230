"""Dead-letter messages: their content, and how their events are put back."""
