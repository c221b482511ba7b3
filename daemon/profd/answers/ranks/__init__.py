"""Several ranks of a job: which collectives are the same, how far clocks are apart, who is slower than the others."""
