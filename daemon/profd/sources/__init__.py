"""Sources: ways of getting events out of a target. One folder each; `base` is what they share."""
