"""What only a machine with an NVIDIA GPU can tell: `python -m bench.gpu`, one result file per script.

    truth       a program whose kernels, copies and bytes are known exactly, recorded by us and by cupti-python
    corpus      CUPTI's raw buffers of that program and of a torch loop, for tests/data/gpu
    overhead    steps off, injected and idle, armed, after disarm, and under torch.profiler: interleaved blocks, ratios
    coexist     late attach, torch.profiler before and after us, a second subscriber, kill while recording
    end_to_end  `profctl start` against a torch process: through kineto, through sdk, and injection alone

None of them has run on a GPU yet (docs/gpu.md, "Verified on").
"""
