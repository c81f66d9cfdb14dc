#include "keel/c_api.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "keel/attention.h"

namespace {

// Nothing here may need memory: the message may be that there is none.
thread_local char last_error[1024] = "";

keel_status fail(keel_status status, const char* message) noexcept {
  const std::size_t size = std::min(std::strlen(message), sizeof(last_error) - 1);
  std::memcpy(last_error, message, size);
  last_error[size] = '\0';
  return status;
}

// Runs `work` and turns what it throws into a status and a message.
template <class Work>
keel_status guarded(Work work) noexcept {
  try {
    last_error[0] = '\0';
    work();
    return KEEL_OK;
  } catch (const keel::Error& error) {
    return fail(error.code() == keel::ErrorCode::out_of_memory ? KEEL_OUT_OF_MEMORY : KEEL_INVALID_ARGUMENT,
                error.what());
  } catch (const std::bad_alloc&) {
    return fail(KEEL_OUT_OF_MEMORY, "expected memory, got none from the system");
  } catch (const std::exception& error) {
    return fail(KEEL_INTERNAL, error.what());
  }
}

[[noreturn]] void refuse(const char* operation, const std::string& text) {
  throw keel::Error(keel::ErrorCode::invalid_argument, std::string("[") + operation + "] " + text);
}

// An enumeration of C may hold any int. Taken byte by byte, because in C++ the mere reading of one out of range is
// undefined; what does not fit a code of ours becomes 255, which no enumeration knows.
template <class To, class From>
To to_enum(const From& code) {
  std::uint32_t number = 0;
  static_assert(sizeof(From) == sizeof(number));
  std::memcpy(&number, &code, sizeof(number));
  return static_cast<To>(std::min(number, 255u));
}

template <std::size_t Rank, class Pointer = void*>
keel::BasicView<Rank, Pointer> to_view(const keel_view& view) {
  keel::BasicView<Rank, Pointer> result{view.data, to_enum<keel::DType>(view.dtype), {}, {}};
  for (std::size_t i = 0; i < Rank; ++i) {
    result.shape[i] = view.shape[i];
    result.strides[i] = view.strides[i];
  }
  return result;
}

keel::TensorView input(const keel_view& view) { return to_view<4, const void*>(view); }

const keel_view& present(const keel_view* view, const char* operation, const char* name) {
  if (view == nullptr) refuse(operation, std::string(name) + ": expected a view, got null");
  return *view;
}

void check_list(const void* data, int64_t count, const char* operation, const char* name) {
  if (count < 0 || (data == nullptr && count > 0)) {
    refuse(operation, std::string(name) + ": expected a pointer to a count of at least 0, got count " +
                          std::to_string(count) + (data == nullptr ? " at null" : ""));
  }
}

keel::Options to_options(const keel_options* o, const char* operation) {
  if (o == nullptr) return {};
  const auto to_span = [&](const int64_t* data, int64_t count, const char* name) {
    check_list(data, count, operation, name);
    return std::span<const std::int64_t>(data, static_cast<std::size_t>(count));
  };
  keel::Options options;
  if (!std::isnan(o->scale)) options.scale = o->scale;
  options.scale_tensor = to_view<3>(o->scale_tensor);
  if (o->softcap != 0.0) options.softcap = o->softcap;
  options.mask = input(o->mask);
  options.bias = input(o->bias);
  options.causal = to_enum<keel::Causal>(o->causal);
  options.window = {o->window_left, o->window_right};
  options.q_lengths = to_span(o->q_lengths, o->q_lengths_count, "q_lengths");
  options.k_lengths = to_span(o->k_lengths, o->k_lengths_count, "k_lengths");
  options.q_offsets = to_span(o->q_offsets, o->q_offsets_count, "q_offsets");
  options.k_offsets = to_span(o->k_offsets, o->k_offsets_count, "k_offsets");
  options.alibi = to_view<1>(o->alibi);
  options.sinks = to_view<1>(o->sinks);
  options.dropout = o->dropout;
  options.seed = o->seed;
  options.threads = o->threads;
  return options;
}

// The library writes these statistics where the caller wants them: both structures are the same in memory.
#define KEEL_SAME_PLACE(field) (offsetof(keel::HeadStatistics, field) == offsetof(keel_head_statistics, field))
static_assert(sizeof(keel::HeadStatistics) == sizeof(keel_head_statistics) && KEEL_SAME_PLACE(max_logit) &&
              KEEL_SAME_PLACE(mean_entropy) && KEEL_SAME_PLACE(min_entropy) && KEEL_SAME_PLACE(normalised_entropy) &&
              KEEL_SAME_PLACE(saturated) && KEEL_SAME_PLACE(rows));
#undef KEEL_SAME_PLACE

// What a call is asked to report.
keel::Outputs to_outputs(const keel_outputs* o, const char* operation) {
  if (o == nullptr) return {};
  check_list(o->heads, o->heads_count, operation, "heads");
  return {.lse = to_view<3>(o->lse),
          .max_logit = to_view<3>(o->max_logit),
          .entropy = to_view<3>(o->entropy),
          .max_weight = to_view<3>(o->max_weight),
          .logit_mean = to_view<3>(o->logit_mean),
          .logit_var = to_view<3>(o->logit_var),
          .visible = to_view<3>(o->visible),
          .logit_count = to_view<3>(o->logit_count),
          .weights = to_view<4>(o->weights),
          .heads = {reinterpret_cast<keel::HeadStatistics*>(o->heads), static_cast<std::size_t>(o->heads_count)},
          .saturation_threshold = o->saturation_threshold,
          .key_sums = to_view<3>(o->key_sums),
          .key_sum_rows = o->key_sum_rows};
}

}  // namespace

extern "C" {

keel_view keel_make_view(const void* data, keel_dtype dtype, int rank, const int64_t* shape) {
  keel_view view{};
  view.data = const_cast<void*>(data);
  std::memcpy(&view.dtype, &dtype, sizeof(dtype));
  if (rank < 0 || rank > 4) {  // a view that every call refuses
    view.shape[0] = -1;
    return view;
  }
  int64_t step = 1;
  for (int i = rank; i-- > 0;) {
    view.shape[i] = shape[i];
    view.strides[i] = step;
    if (__builtin_mul_overflow(step, shape[i], &step)) step = INT64_MAX;  // such a shape is refused by the call
  }
  return view;
}

void keel_options_init(keel_options* options) {
  *options = {};
  options->scale = NAN;
  options->window_left = options->window_right = KEEL_UNBOUNDED;
}

void keel_outputs_init(keel_outputs* outputs) {
  *outputs = {};
  outputs->saturation_threshold = keel::Outputs{}.saturation_threshold;
}

keel_status keel_attention(const keel_view* q, const keel_view* k, const keel_view* v, const keel_view* out,
                           const keel_options* options, const keel_outputs* outputs) {
  return guarded([&] {
    keel::attention(input(present(q, "attention", "q")), input(present(k, "attention", "k")),
                    input(present(v, "attention", "v")), to_view<4>(present(out, "attention", "out")),
                    to_options(options, "attention"), to_outputs(outputs, "attention"));
  });
}

keel_status keel_attention_backward(const keel_backward_inputs* inputs, const keel_gradients* gradients,
                                    const keel_options* options) {
  return guarded([&] {
    if (inputs == nullptr) refuse("attention_backward", "inputs: expected a structure, got null");
    if (gradients == nullptr) refuse("attention_backward", "gradients: expected a structure, got null");
    keel::attention_backward({.q = input(inputs->q),
                              .k = input(inputs->k),
                              .v = input(inputs->v),
                              .out = input(inputs->out),
                              .lse = to_view<3>(inputs->lse),
                              .dout = input(inputs->dout),
                              .dlse = to_view<3>(inputs->dlse)},
                             {.dq = to_view<4>(gradients->dq),
                              .dk = to_view<4>(gradients->dk),
                              .dv = to_view<4>(gradients->dv),
                              .dbias = to_view<4>(gradients->dbias),
                              .dscale = to_view<3>(gradients->dscale),
                              .dsinks = to_view<1>(gradients->dsinks)},
                             to_options(options, "attention_backward"));
  });
}

keel_status keel_merge(const keel_partial* parts, int64_t count, const keel_view* out, const keel_outputs* outputs,
                       int threads) {
  return guarded([&] {
    check_list(parts, count, "merge", "parts");
    std::vector<keel::Partial> list;
    for (const keel_partial& part : std::span(parts, static_cast<std::size_t>(count))) {
      list.push_back({.out = input(part.out),
                      .lse = to_view<3>(part.lse),
                      .max_logit = to_view<3>(part.max_logit),
                      .entropy = to_view<3>(part.entropy),
                      .max_weight = to_view<3>(part.max_weight),
                      .logit_mean = to_view<3>(part.logit_mean),
                      .logit_var = to_view<3>(part.logit_var),
                      .visible = to_view<3>(part.visible),
                      .logit_count = to_view<3>(part.logit_count)});
    }
    keel::merge(list, to_view<4>(present(out, "merge", "out")), to_outputs(outputs, "merge"), threads);
  });
}

const char* keel_last_error(void) { return last_error; }

const char* keel_version(void) { return keel::version(); }

}  // extern "C"
