"""One thread for torch, and so for Keel: the calls of the tests are small, and other tests may be running."""

import torch

torch.set_num_threads(1)
