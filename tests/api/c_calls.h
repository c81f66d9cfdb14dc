#pragma once

#include <vector>

#include "core/valid_call.h"
#include "keel/c_api.h"

// Calls of the C interface that are valid as they stand; a test spoils one thing and reads the message.
namespace keel {

inline keel_view tensor(const void* data, const Sizes4& shape, keel_dtype dtype = KEEL_F32) {
  return keel_make_view(data, dtype, 4, shape.data());
}
inline keel_view rows(const void* data, const Sizes3& shape = kRowShape, keel_dtype dtype = KEEL_F32) {
  return keel_make_view(data, dtype, 3, shape.data());
}
inline keel_view heads(const void* data, std::int64_t count = kHq) { return keel_make_view(data, KEEL_F32, 1, &count); }
inline keel_view list(const void* data, std::int64_t count) { return keel_make_view(data, KEEL_I64, 1, &count); }

struct CForward {
  Block blocks[4], more[12];
  keel_view q = tensor(blocks[0].data(), kQShape), k = tensor(blocks[1].data(), kKShape),
            v = tensor(blocks[2].data(), kVShape), out = tensor(blocks[3].data(), kOutShape);
  keel_options options;
  keel_outputs outputs;
  std::vector<std::int64_t> list_data = {1, 2};
  std::vector<keel_head_statistics> head_list = std::vector<keel_head_statistics>(kB * kHq);
  bool null[4] = {};

  CForward() {
    KEEL_INIT(&options);
    KEEL_INIT(&outputs);
  }
  void ask_for_heads(std::int64_t count, keel_head_statistics* to) {
    outputs.heads = to;
    outputs.heads_count = count;
    outputs.heads_size = sizeof(keel_head_statistics);
  }
  void use_as_heads(Block& block) {
    ask_for_heads(std::ssize(head_list), reinterpret_cast<keel_head_statistics*>(block.data()));
  }
  keel_status operator()() const {
    return keel_attention(null[0] ? nullptr : &q, null[1] ? nullptr : &k, null[2] ? nullptr : &v,
                          null[3] ? nullptr : &out, &options, &outputs);
  }
};

struct CBackward {
  Block blocks[7], more[6], bias, sinks;
  keel_backward_inputs inputs = {sizeof(inputs),
                                 tensor(blocks[0].data(), kQShape),
                                 tensor(blocks[1].data(), kKShape),
                                 tensor(blocks[2].data(), kVShape),
                                 tensor(blocks[3].data(), kOutShape),
                                 rows(blocks[4].data()),
                                 tensor(blocks[5].data(), kOutShape),
                                 rows(blocks[6].data())};
  keel_gradients gradients = {sizeof(gradients),
                              tensor(more[0].data(), kQShape),
                              tensor(more[1].data(), kKShape),
                              tensor(more[2].data(), kVShape),
                              tensor(more[3].data(), kScoreShape),
                              rows(more[4].data()),
                              heads(more[5].data()),
                              /*accumulate=*/0,
                              {}};
  keel_options options;
  bool no_inputs = false, no_gradients = false;

  CBackward() {
    KEEL_INIT(&options);
    options.bias = tensor(bias.data(), kScoreShape);
    options.sinks = heads(sinks.data());
  }
  keel_status operator()() const {
    return keel_attention_backward(no_inputs ? nullptr : &inputs, no_gradients ? nullptr : &gradients, &options);
  }
};

struct CJvp {
  Block blocks[5], more[6], out, lse, bias, sinks;
  keel_jvp_inputs inputs = {sizeof(inputs),
                            tensor(blocks[0].data(), kQShape),
                            tensor(blocks[1].data(), kKShape),
                            tensor(blocks[2].data(), kVShape),
                            tensor(blocks[3].data(), kOutShape),
                            rows(blocks[4].data())};
  keel_tangents tangents = {sizeof(tangents),
                            tensor(more[0].data(), kQShape),
                            tensor(more[1].data(), kKShape),
                            tensor(more[2].data(), kVShape),
                            tensor(more[3].data(), kScoreShape),
                            rows(more[4].data()),
                            heads(more[5].data())};
  keel_jvp_outputs outputs = {sizeof(outputs), tensor(out.data(), kOutShape), rows(lse.data()), /*accumulate=*/0};
  keel_options options;
  bool no_inputs = false, no_tangents = false, no_outputs = false;

  CJvp() {
    KEEL_INIT(&options);
    options.bias = tensor(bias.data(), kScoreShape);
    options.sinks = heads(sinks.data());
  }
  keel_status operator()() const {
    return keel_attention_jvp(no_inputs ? nullptr : &inputs, no_tangents ? nullptr : &tangents,
                              no_outputs ? nullptr : &outputs, &options);
  }
};

struct CDouble : CBackward {
  Block more_blocks[8];
  keel_tangents tangents = {sizeof(tangents), tensor(more_blocks[0].data(), kQShape), {}, {}, {}, {}, {}};
  keel_double_gradients second = {sizeof(second), gradients.dq,
                                  gradients.dk,   gradients.dv,
                                  gradients.dbias, gradients.dscale,
                                  gradients.dsinks, tensor(more_blocks[1].data(), kOutShape),
                                  rows(more_blocks[2].data()), /*accumulate=*/0};
  bool no_tangents = false, no_second = false;

  keel_status operator()() const {
    return keel_attention_double_backward(no_inputs ? nullptr : &inputs, no_tangents ? nullptr : &tangents,
                                          no_second ? nullptr : &second, &options);
  }
};

struct CMerge {
  Block blocks[2][9], out_block, row_blocks[8];
  keel_partial parts[2] = {part(blocks[0]), part(blocks[1])};
  keel_view out = tensor(out_block.data(), kOutShape);
  keel_outputs outputs;
  std::int64_t count = 2;
  int threads = 0;
  bool no_parts = false, no_out = false, no_outputs = false;

  CMerge() {
    KEEL_INIT(&outputs);
    keel_view* const views[] = {&outputs.lse,        &outputs.max_logit, &outputs.entropy, &outputs.max_weight,
                                &outputs.logit_mean, &outputs.logit_var, &outputs.visible, &outputs.logit_count};
    for (int i = 0; i < 8; ++i) *views[i] = rows(row_blocks[i].data());
    outputs.visible.dtype = outputs.logit_count.dtype = KEEL_I64;
  }

  static keel_partial part(Block* block) {
    keel_partial p;
    KEEL_INIT(&p);
    p.out = tensor(block[0].data(), kOutShape);
    keel_view* const views[] = {&p.lse,        &p.max_logit, &p.entropy, &p.max_weight,
                                &p.logit_mean, &p.logit_var, &p.visible, &p.logit_count};
    for (int i = 0; i < 8; ++i) *views[i] = rows(block[i + 1].data());
    p.visible.dtype = p.logit_count.dtype = KEEL_I64;
    return p;
  }

  keel_status operator()() const {
    return keel_merge(no_parts ? nullptr : parts, count, no_out ? nullptr : &out, no_outputs ? nullptr : &outputs,
                      threads);
  }
};

}  // namespace keel
