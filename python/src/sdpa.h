#pragma once

#include "array.h"

namespace keel::python {

// The short way for torch's scaled_dot_product_attention on plain tensors, where a call is a matter of microseconds.
// False, and nothing done, where a call needs more than the library does by itself (batches or heads to broadcast, more
// than four dimensions, another d_v than d_k) or is wrong in a way that is better told in torch's words. Otherwise
// True, or the log-sum-exp as a new tensor.
nb::object sdpa(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle mask, nb::handle causal,
                nb::handle scale, nb::handle grouped, int threads, bool with_lse);

// The gradients of such a call. None where one is not wanted.
void sdpa_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle dout,
                   nb::handle dq, nb::handle dk, nb::handle dv, nb::handle mask, bool causal, nb::handle scale,
                   int threads);

}  // namespace keel::python
