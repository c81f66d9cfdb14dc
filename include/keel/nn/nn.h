#pragma once

// All of the training layer.
#include "keel/nn/attention.h"
#include "keel/nn/checkpoint.h"
#include "keel/nn/init.h"
#include "keel/nn/layers.h"
#include "keel/nn/module.h"
#include "keel/nn/ops.h"
#include "keel/nn/optim.h"
#include "keel/nn/random.h"
#include "keel/nn/recurrent.h"
#include "keel/nn/scores.h"
#include "keel/nn/tensor.h"
#include "keel/nn/transformer.h"
