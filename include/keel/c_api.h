#ifndef KEEL_C_API_H_
#define KEEL_C_API_H_

/* Keel in C. The meaning of every argument is that of keel/attention.h; only the spelling differs.
 *
 *   keel_options options;
 *   keel_options_init(&options);
 *   options.causal = KEEL_CAUSAL_TOP_LEFT;
 *   if (keel_attention(&q, &k, &v, &out, &options, NULL) != KEEL_OK) puts(keel_last_error());
 *
 * A view whose fields are all zero is "not given". No exception crosses this interface. */

#include <stdint.h>

#include "keel/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum keel_status {
  KEEL_OK = 0,
  KEEL_INVALID_ARGUMENT = 1,
  KEEL_OUT_OF_MEMORY = 2,
  KEEL_INTERNAL = 3
} keel_status;

typedef enum keel_dtype {
  KEEL_F64 = 0,
  KEEL_F32 = 1,
  KEEL_F16 = 2,
  KEEL_BF16 = 3,
  KEEL_BOOL = 4,
  KEEL_I64 = 5
} keel_dtype;

typedef enum keel_causal { KEEL_CAUSAL_NONE = 0, KEEL_CAUSAL_TOP_LEFT = 1, KEEL_CAUSAL_BOTTOM_RIGHT = 2 } keel_causal;

#define KEEL_UNBOUNDED INT64_MAX

/* A view of an array, strides in elements. Tensors use four dimensions (B, H, N, D), rows the first three (B, H, N_q),
 * per-head values the first alone. */
typedef struct keel_view {
  void* data;
  keel_dtype dtype;
  int64_t shape[4];
  int64_t strides[4];
} keel_view;

/* Fills shape and the strides of a gap-free C-order array; rank is 1, 3 or 4, any other gives a view that is refused.
 */
KEEL_API keel_view keel_make_view(const void* data, keel_dtype dtype, int rank, const int64_t* shape);

typedef struct keel_options {
  double scale;           /* NaN: 1/sqrt(d_k) */
  keel_view scale_tensor; /* rows */
  double softcap;         /* 0: none */
  keel_view mask;
  keel_view bias;
  keel_causal causal;
  int64_t window_left, window_right; /* KEEL_UNBOUNDED: no bound */
  const int64_t *q_lengths, *k_lengths;
  int64_t q_lengths_count, k_lengths_count;
  const int64_t *q_offsets, *k_offsets;
  int64_t q_offsets_count, k_offsets_count;
  keel_view alibi, sinks; /* per head */
  double dropout;
  uint64_t seed;
  int threads; /* 0: all */
} keel_options;

/* Plain attention: start every keel_options from this. */
KEEL_API void keel_options_init(keel_options* options);

typedef struct keel_head_statistics {
  double max_logit, mean_entropy, min_entropy, normalised_entropy, saturated;
  int64_t rows;
} keel_head_statistics;

typedef struct keel_outputs {
  keel_view lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count; /* rows */
  keel_view weights;
  keel_head_statistics* heads;
  int64_t heads_count;
  double saturation_threshold;
  keel_view key_sums;   /* (B, H_q, N_k) */
  int64_t key_sum_rows; /* 0: all */
} keel_outputs;

/* Nothing requested, threshold 0.99. */
KEEL_API void keel_outputs_init(keel_outputs* outputs);

typedef struct keel_backward_inputs {
  keel_view q, k, v, out, lse, dout, dlse;
} keel_backward_inputs;

typedef struct keel_gradients {
  keel_view dq, dk, dv, dbias, dscale, dsinks;
} keel_gradients;

typedef struct keel_partial {
  keel_view out;
  keel_view lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count; /* rows */
} keel_partial;

/* options and outputs may be NULL. */
KEEL_API keel_status keel_attention(const keel_view* q, const keel_view* k, const keel_view* v, const keel_view* out,
                                    const keel_options* options, const keel_outputs* outputs);

/* options may be NULL. */
KEEL_API keel_status keel_attention_backward(const keel_backward_inputs* inputs, const keel_gradients* gradients,
                                             const keel_options* options);

/* outputs may be NULL; lse and row statistics may be asked for. threads 0: all. */
KEEL_API keel_status keel_merge(const keel_partial* parts, int64_t count, const keel_view* out,
                                const keel_outputs* outputs, int threads);

/* The message of this thread's last failed call; "" when none failed. Valid until the thread's next call. */
KEEL_API const char* keel_last_error(void);

KEEL_API const char* keel_version(void);

#ifdef __cplusplus
}
#endif

#endif /* KEEL_C_API_H_ */
