#pragma once

// All of the training layer.
#include "keel/nn/attention.h"
#include "keel/nn/ops.h"
#include "keel/nn/random.h"
#include "keel/nn/tensor.h"
