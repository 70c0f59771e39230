"""Dead-letter messages: what they say, and how what they hold is put back."""
