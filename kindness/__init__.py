"""Other people's programs, captured over and over: whether any of them is harmed. See docs/kindness.md."""
