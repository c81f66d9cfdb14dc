"""One thread for torch and for Keel beside it: the tests are of small calls, and may share the machine with other tests."""

import torch

torch.set_num_threads(1)
