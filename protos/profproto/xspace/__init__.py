"""XSpace, the trace format of XLA, JAX and TensorFlow, under a package of our own."""
