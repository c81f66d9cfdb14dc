#ifndef KEEL_C_API_H_
#define KEEL_C_API_H_

/* Keel in C. Every argument means what it means in keel/attention.h; only the spelling differs.
 *
 *   keel_options options = {.size = sizeof(options), .causal = KEEL_CAUSAL_TOP_LEFT};
 *   if (keel_attention(&q, &k, &v, &out, &options, NULL) != KEEL_OK) puts(keel_last_error());
 *
 * Compatibility. A structure with a field `size` begins with it: set it to the structure's sizeof, as above or by
 * KEEL_INIT(&options). 0 is the default of every other field, and later versions only append fields. The
 * library thus accepts the structures of a program that was compiled against an older header, and of one compiled
 * against a newer header if the fields it does not know are 0; others it rejects by name. Structures without a size
 * never change; their `reserved` fields must be 0.
 *
 * Fields that hold an enumeration are int32_t, as the size of an enumeration is the compiler's choice.
 * No exception crosses this interface. */

#include <stdint.h>
#include <string.h>

#include "keel/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum keel_status {
  KEEL_OK = 0,
  KEEL_INVALID_ARGUMENT = 1, /* an invalid argument; nothing was computed or written */
  KEEL_OUT_OF_MEMORY = 2,
  KEEL_INTERNAL = 3,
  KEEL_UNSUPPORTED = 4,  /* no backend serves the call; nothing was computed or written */
  KEEL_WRONG_DTYPE = 5,  /* an argument of a dtype not accepted there; nothing was computed or written */
  KEEL_DEVICE_FAILED = 6 /* the device or its driver failed; outputs are undefined */
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

/* Which scores keel_outputs.scores are. */
typedef enum keel_score_stage {
  KEEL_SCORES_RAW = 0,    /* scale * (q . k) */
  KEEL_SCORES_CAPPED = 1, /* after the softcap */
  KEEL_SCORES_MASKED = 2  /* after biases, ALiBi and masks */
} keel_score_stage;

typedef enum keel_device_kind { KEEL_CPU = 0, KEEL_CUDA = 1, KEEL_EXTENSION = 2 } keel_device_kind;

#define KEEL_UNBOUNDED INT64_MAX

/* Sets every field to its default: KEEL_INIT(&options), for any structure that begins with its size. */
#define KEEL_INIT(object) (memset((object), 0, sizeof(*(object))), (void)((object)->size = sizeof(*(object))))

typedef struct keel_device {
  int32_t kind; /* keel_device_kind */
  int32_t index;
} keel_device;

/* A view of an array, strides in elements. Tensors use four dimensions (B, H, N, D), rows the first three (B, H, N_q),
 * tables the first two, per-head values and lists (lengths, offsets: KEEL_I64) only the first; the sizes of the others
 * are 0. A view whose fields are all 0 is "not given". */
typedef struct keel_view {
  void* data;
  int64_t shape[4];
  int64_t strides[4];
  int32_t dtype; /* keel_dtype */
  keel_device device;
  uint32_t reserved[5];
} keel_view;

/* A contiguous C-order array on the CPU; rank is from 1 to 4, any other gives a view that calls reject. */
KEEL_API keel_view keel_make_view(const void* data, int32_t dtype, int32_t rank, const int64_t* shape);

/* Where q and k stand in a longer problem. */
typedef struct keel_origin {
  int64_t query, key; /* position of the first row of q, and of k */
  int64_t n_q, n_k;   /* rows of the whole; 0: it ends where the slice ends */
} keel_origin;

/* A mask in tiles. */
typedef struct keel_block_mask {
  uint64_t size;
  keel_view offsets; /* KEEL_I64, (B, H_q, X + 1) */
  keel_view blocks;  /* KEEL_I64, (L, 2) */
  keel_view tiles;   /* KEEL_BOOL, (T, R, C) */
} keel_block_mask;

typedef struct keel_options {
  uint64_t size;
  double scale;           /* used if has_scale is 1 */
  int32_t has_scale;      /* 0: 1/sqrt(d_k), or scale_tensor */
  int32_t causal;         /* keel_causal */
  keel_view scale_tensor; /* rows */
  double softcap;         /* 0: none */
  keel_view mask, bias;
  int64_t window_left, window_right; /* used if has_window is 1; KEEL_UNBOUNDED: no bound */
  int32_t has_window;
  int32_t threads; /* 0: all */
  keel_origin origin;
  keel_view q_lengths, k_lengths; /* lists */
  keel_view q_offsets, k_offsets; /* lists */
  keel_view alibi;                /* per head, (H_q), or per batch entry and head, (B, H_q) */
  keel_view sinks;                /* per head */
  double dropout;
  uint64_t seed;
  void* stream;                      /* on a CUDA device: the cudaStream_t on which the work is queued */
  keel_view relative_bias;           /* (H_q, 2R + 1) */
  const keel_block_mask* block_mask; /* NULL: none */
  keel_view k_starts;                /* list */
  int64_t order;          /* on a CUDA device: 0: dq has the same bits every time; 1: added up in any order */
  int64_t split_products; /* f32 on a CPU with AMX: not 0: the forward pass multiplies in three parts of bf16 */
} keel_options;

typedef struct keel_head_statistics {
  double max_logit, mean_entropy, min_entropy, normalised_entropy, saturated;
  int64_t rows;
} keel_head_statistics;

typedef struct keel_outputs {
  uint64_t size;
  keel_view lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible; /* rows */
  keel_view weights;
  keel_head_statistics* heads; /* heads_count of them, each of heads_size bytes */
  int64_t heads_count;
  uint64_t heads_size;         /* sizeof(keel_head_statistics), which may grow */
  double saturation_threshold; /* 0: 0.99 */
  keel_view key_sums;          /* (B, H_q, N_k) */
  int64_t key_sum_rows;        /* 0: all */
  keel_view logit_count;       /* rows */
  keel_view scores;            /* (B, H_q, N_q, N_k) */
  int64_t score_stage;         /* keel_score_stage */
} keel_outputs;

typedef struct keel_backward_inputs {
  uint64_t size;
  keel_view q, k, v, out, lse, dout, dlse;
} keel_backward_inputs;

typedef struct keel_gradients {
  uint64_t size;
  keel_view dq, dk, dv, dbias, dscale, dsinks;
  int64_t accumulate; /* 1: add to what the views hold; 0: overwrite it */
  keel_view drelative_bias;
} keel_gradients;

typedef struct keel_tangents {
  uint64_t size;
  keel_view tq, tk, tv, tbias, tscale, tsinks;
} keel_tangents;

typedef struct keel_jvp_inputs {
  uint64_t size;
  keel_view q, k, v, out, lse;
} keel_jvp_inputs;

typedef struct keel_jvp_outputs {
  uint64_t size;
  keel_view tout, tlse;
  int64_t accumulate; /* 1: add to what the views hold; 0: overwrite it */
} keel_jvp_outputs;

typedef struct keel_double_gradients {
  uint64_t size;
  keel_view dq, dk, dv, dbias, dscale, dsinks, ddout, ddlse;
  int64_t accumulate; /* 1: add to what the views hold; 0: overwrite it */
} keel_double_gradients;

typedef struct keel_partial {
  uint64_t size; /* the same in every element of an array */
  keel_view out;
  keel_view lse, max_logit, entropy, max_weight, logit_mean, logit_var, visible, logit_count; /* rows */
} keel_partial;

/* options and outputs may be NULL. */
KEEL_API keel_status keel_attention(const keel_view* q, const keel_view* k, const keel_view* v, const keel_view* out,
                                    const keel_options* options, const keel_outputs* outputs);

/* options may be NULL. */
KEEL_API keel_status keel_attention_backward(const keel_backward_inputs* inputs, const keel_gradients* gradients,
                                             const keel_options* options);

/* options may be NULL. */
KEEL_API keel_status keel_attention_jvp(const keel_jvp_inputs* inputs, const keel_tangents* tangents,
                                        const keel_jvp_outputs* outputs, const keel_options* options);

/* options may be NULL. */
KEEL_API keel_status keel_attention_double_backward(const keel_backward_inputs* inputs, const keel_tangents* tangents,
                                                    const keel_double_gradients* gradients,
                                                    const keel_options* options);

/* outputs may be NULL; lse and row statistics may be requested. threads 0: all. */
KEEL_API keel_status keel_merge(const keel_partial* parts, int64_t count, const keel_view* out,
                                const keel_outputs* outputs, int32_t threads);

/* The same for arrays on a CUDA device: the work is queued on that cudaStream_t, and not waited for. */
KEEL_API keel_status keel_merge_on_stream(const keel_partial* parts, int64_t count, const keel_view* out,
                                          const keel_outputs* outputs, void* stream);

/* How keel_attention or keel_attention_backward would serve this call, as text that is valid until this thread asks
 * again; data is not read, and pointers may be null. NULL if the call would be rejected: see keel_last_status. */
KEEL_API const char* keel_explain(const keel_view* q, const keel_view* k, const keel_view* v, const keel_view* out,
                                  const keel_options* options, const keel_outputs* outputs);
KEEL_API const char* keel_explain_backward(const keel_backward_inputs* inputs, const keel_gradients* gradients,
                                           const keel_options* options);

/* From now on an OpenMP library's threads do the work: keel_use_team(GOMP_parallel, omp_get_max_threads); see
 * keel/threads.h. NULL, NULL: Keel's own again. */
KEEL_API keel_status keel_use_team(void (*run)(void (*work)(void*), void* data, unsigned threads, unsigned flags),
                                   int (*size)(void));

/* The status of this thread's last call, and its message, "" if the call succeeded. Valid until the thread's next
 * call. */
KEEL_API keel_status keel_last_status(void);
KEEL_API const char* keel_last_error(void);

KEEL_API const char* keel_version(void);

#ifdef __cplusplus
}
#endif

#endif /* KEEL_C_API_H_ */
