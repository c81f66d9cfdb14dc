/* consumer VERSION: the C interface from outside the source tree, on attention worked out by hand. */
#include <keel/c_api.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int failed = 0;

static void check(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "FAILED: %s\n", what);
  failed = 1;
}

static int near(float got, double expected) { return fabs(got - expected) < 1e-6; }

int main(int argc, char** argv) {
  check(argc == 2 && strcmp(keel_version(), argv[1]) == 0, "the library's and the package's versions agree");

  /* With d_k = 4 the scale is 1/2: the scores of either query are 0 and ln 3, the weights 1/4 and 3/4. */
  const float ln3 = logf(3.0f);
  const float q_data[8] = {2, 0, 0, 0, 2, 0, 0, 0};
  const float k_data[8] = {0, 0, 0, 0, ln3, 0, 0, 0};
  const float v_data[4] = {8, 0, 0, 8};
  float out_data[4] = {0};
  float lse_data[2] = {0};
  const keel_view q = keel_make_view(q_data, KEEL_F32, 4, (const int64_t[]){1, 1, 2, 4});
  const keel_view k = keel_make_view(k_data, KEEL_F32, 4, (const int64_t[]){1, 1, 2, 4});
  const keel_view v = keel_make_view(v_data, KEEL_F32, 4, (const int64_t[]){1, 1, 2, 2});
  const keel_view out = keel_make_view(out_data, KEEL_F32, 4, (const int64_t[]){1, 1, 2, 2});

  const keel_options options = {.size = sizeof(options), .causal = KEEL_CAUSAL_TOP_LEFT};
  keel_outputs outputs;
  KEEL_INIT(&outputs);
  outputs.lse = keel_make_view(lse_data, KEEL_F32, 3, (const int64_t[]){1, 1, 2});

  check(keel_attention(&q, &k, &v, &out, &options, &outputs) == KEEL_OK, keel_last_error());
  check(near(out_data[0], 8) && near(out_data[1], 0), "the first query sees the first key alone: out = (8, 0)");
  check(near(out_data[2], 2) && near(out_data[3], 6), "the second query weighs 1/4 and 3/4: out = (2, 6)");
  check(near(lse_data[0], 0) && near(lse_data[1], log(4.0)), "lse = (ln 1, ln 4)");

  const keel_view narrow = keel_make_view(k_data, KEEL_F32, 4, (const int64_t[]){1, 1, 2, 3});
  check(keel_attention(&q, &narrow, &v, &out, NULL, NULL) == KEEL_INVALID_ARGUMENT,
        "a k of another head size returns KEEL_INVALID_ARGUMENT");
  check(strncmp(keel_last_error(), "[attention] k", 13) == 0, "the error's message names the argument");
  check(near(out_data[2], 2), "a call that fails writes nothing");

  const char* const plan = keel_explain(&q, &k, &v, &out, &options, &outputs);
  check(plan != NULL && strstr(plan, "backend") != NULL, "the plan of the call names the backend");

  /* The second key alone, as a slice: both queries stand at positions of their own, so the first does not see it. */
  const keel_view second_k = keel_make_view(k_data + 4, KEEL_F32, 4, (const int64_t[]){1, 1, 1, 4});
  const keel_view second_v = keel_make_view(v_data + 2, KEEL_F32, 4, (const int64_t[]){1, 1, 1, 2});
  const keel_options slice = {.size = sizeof(slice), .causal = KEEL_CAUSAL_TOP_LEFT, .origin = {.key = 1}};
  check(keel_attention(&q, &second_k, &second_v, &out, &slice, NULL) == KEEL_OK, keel_last_error());
  check(near(out_data[0], 0) && near(out_data[1], 0), "the first query sees no key of the slice: out = (0, 0)");
  check(near(out_data[2], 0) && near(out_data[3], 8), "the second query sees the one key: out = (0, 8)");

  /* What a program that forgot the size, or was compiled against a header without it, is told. */
  const keel_options no_size = {.causal = KEEL_CAUSAL_TOP_LEFT};
  check(keel_attention(&q, &k, &v, &out, &no_size, NULL) == KEEL_INVALID_ARGUMENT,
        "options without a size are refused");
  check(strncmp(keel_last_error(), "[attention] options.size: expected", 34) == 0, keel_last_error());
  return failed;
}
