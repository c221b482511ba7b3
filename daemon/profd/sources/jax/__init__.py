"""On-demand traces of JAX and TensorFlow processes, through the profiler server that they run themselves."""
