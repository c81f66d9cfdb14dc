#include "keel/c_api.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "api/c_reader.h"
#include "keel/threads.h"

namespace {

using keel::c_api::Reader;

// Nothing here may need memory: the message may be that there is none.
thread_local char last_error[1024] = "";
thread_local keel_status last_status = KEEL_OK;

keel_status fail(keel_status status, const char* message) noexcept {
  const std::size_t size = std::min(std::strlen(message), sizeof(last_error) - 1);
  std::memcpy(last_error, message, size);
  last_error[size] = '\0';
  return last_status = status;
}

keel_status status_of(keel::ErrorCode code) {
  switch (code) {
    case keel::ErrorCode::out_of_memory:
      return KEEL_OUT_OF_MEMORY;
    case keel::ErrorCode::unsupported:
      return KEEL_UNSUPPORTED;
    case keel::ErrorCode::wrong_dtype:
      return KEEL_WRONG_DTYPE;
    case keel::ErrorCode::device:
      return KEEL_DEVICE_FAILED;
    default:
      return KEEL_INVALID_ARGUMENT;
  }
}

// Runs `work` and turns what it throws into a status and a message.
template <class Work>
keel_status guarded(Work work) noexcept {
  try {
    last_error[0] = '\0';
    last_status = KEEL_OK;
    work();
    return KEEL_OK;
  } catch (const keel::Error& error) {
    return fail(status_of(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(KEEL_OUT_OF_MEMORY, "expected memory, got none from the system");
  } catch (const std::exception& error) {
    return fail(KEEL_INTERNAL, error.what());
  }
}

// The arguments of a call, read in order. The options refer to what the reader holds.
struct Forward {
  Forward(const keel_view* q_, const keel_view* k_, const keel_view* v_, const keel_view* out_,
          const keel_options* options_, const keel_outputs* outputs_)
      : q(read.tensor(q_, "q")),
        k(read.tensor(k_, "k")),
        v(read.tensor(v_, "v")),
        out(read.tensor(out_, "out")),
        options(read.options(options_)),
        outputs(read.outputs(outputs_)) {}
  Forward(const Forward&) = delete;

  Reader read{"attention"};
  keel::TensorView q, k, v;
  keel::MutableTensorView out;
  keel::Options options;
  keel::Outputs outputs;
};

struct Backward {
  Backward(const keel_backward_inputs* inputs_, const keel_gradients* gradients_, const keel_options* options_)
      : inputs(read.backward_inputs(inputs_)), gradients(read.gradients(gradients_)), options(read.options(options_)) {}
  Backward(const Backward&) = delete;

  Reader read{"attention_backward"};
  keel::BackwardInputs inputs;
  keel::Gradients gradients;
  keel::Options options;
};

struct Merge {
  const keel_partial* parts;
  int64_t count;
  const keel_view* out;
  const keel_outputs* outputs;
};
void merge_parts(const Merge& given, int32_t threads, void* stream) {
  const Reader read("merge");
  const std::vector<keel::Partial> list = read.parts(given.parts, given.count);
  const keel::MutableTensorView to = read.tensor(given.out, "out");
  keel::merge(list, to, read.outputs(given.outputs), threads, stream);
}

// Text for the caller to read until this thread asks again.
std::string& text_of_thread() {
  static thread_local std::string text;
  return text;
}

template <class Work>
const char* explained(Work work) noexcept {
  std::string& text = text_of_thread();
  return guarded([&] { text = work(); }) == KEEL_OK ? text.c_str() : nullptr;
}

}  // namespace

extern "C" {

keel_view keel_make_view(const void* data, int32_t dtype, int32_t rank, const int64_t* shape) {
  keel_view view{};
  view.data = const_cast<void*>(data);
  view.dtype = dtype;
  if (rank < 1 || rank > 4) {  // every call rejects this view
    view.shape[0] = -1;
    return view;
  }
  int64_t step = 1;
  for (int32_t i = rank; i-- > 0;) {
    view.shape[i] = shape[i];
    view.strides[i] = step;
    if (__builtin_mul_overflow(step, shape[i], &step)) step = INT64_MAX;  // the call rejects such a shape
  }
  return view;
}

keel_status keel_attention(const keel_view* q, const keel_view* k, const keel_view* v, const keel_view* out,
                           const keel_options* options, const keel_outputs* outputs) {
  return guarded([&] {
    const Forward call(q, k, v, out, options, outputs);
    keel::attention(call.q, call.k, call.v, call.out, call.options, call.outputs);
  });
}

keel_status keel_attention_backward(const keel_backward_inputs* inputs, const keel_gradients* gradients,
                                    const keel_options* options) {
  return guarded([&] {
    const Backward call(inputs, gradients, options);
    keel::attention_backward(call.inputs, call.gradients, call.options);
  });
}

keel_status keel_attention_jvp(const keel_jvp_inputs* inputs, const keel_tangents* tangents,
                               const keel_jvp_outputs* outputs, const keel_options* options) {
  return guarded([&] {
    Reader read("attention_jvp");
    const keel::JvpInputs from = read.jvp_inputs(inputs);
    const keel::Tangents along = read.tangents(tangents);
    keel::attention_jvp(from, along, read.jvp_outputs(outputs), read.options(options));
  });
}

keel_status keel_attention_double_backward(const keel_backward_inputs* inputs, const keel_tangents* tangents,
                                           const keel_double_gradients* gradients, const keel_options* options) {
  return guarded([&] {
    Reader read("attention_double_backward");
    const keel::BackwardInputs from = read.backward_inputs(inputs);
    const keel::Tangents along = read.tangents(tangents);
    keel::attention_double_backward(from, along, read.double_gradients(gradients), read.options(options));
  });
}

keel_status keel_merge(const keel_partial* parts, int64_t count, const keel_view* out, const keel_outputs* outputs,
                       int32_t threads) {
  return guarded([&] { merge_parts({parts, count, out, outputs}, threads, nullptr); });
}

keel_status keel_merge_on_stream(const keel_partial* parts, int64_t count, const keel_view* out,
                                 const keel_outputs* outputs, void* stream) {
  return guarded([&] { merge_parts({parts, count, out, outputs}, 0, stream); });
}

const char* keel_explain(const keel_view* q, const keel_view* k, const keel_view* v, const keel_view* out,
                         const keel_options* options, const keel_outputs* outputs) {
  return explained([&] {
    const Forward call(q, k, v, out, options, outputs);
    return keel::explain(call.q, call.k, call.v, call.out, call.options, call.outputs);
  });
}

const char* keel_explain_backward(const keel_backward_inputs* inputs, const keel_gradients* gradients,
                                  const keel_options* options) {
  return explained([&] {
    const Backward call(inputs, gradients, options);
    return keel::explain(call.inputs, call.gradients, call.options);
  });
}

keel_status keel_use_team(void (*run)(void (*work)(void*), void* data, unsigned threads, unsigned flags),
                          int (*size)()) {
  return guarded([&] {
    if ((run == nullptr) != (size == nullptr)) {
      Reader("use_team")
          .refuse(run == nullptr ? "run" : "size", ": expected a function together with ",
                  run == nullptr ? "size" : "run", ", got null");
    }
    keel::use_team({run, size});
  });
}

keel_status keel_last_status(void) { return last_status; }

const char* keel_last_error(void) { return last_error; }

const char* keel_version(void) { return keel::version(); }

}  // extern "C"
