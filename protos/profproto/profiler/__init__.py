"""The profiler service of JAX and TensorFlow, under a package of our own."""
