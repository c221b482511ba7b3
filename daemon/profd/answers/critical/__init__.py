"""What the end of the training steps waited for: the chain of work on the host and on devices that set their pace."""
