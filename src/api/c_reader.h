#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/message.h"
#include "keel/attention.h"
#include "keel/c_api.h"

namespace keel::c_api {

// Converts the arguments of a call to C++, and checks what only the C structures can get wrong. Raises keel::Error for
// an invalid one.
class Reader {
 public:
  explicit Reader(const char* operation) : operation_(operation) {}

  // A tensor; null is rejected.
  MutableTensorView tensor(const keel_view* from, const char* name) const;
  Options options(const keel_options* from);  // null: the defaults, as for outputs(); valid as long as the reader
  Outputs outputs(const keel_outputs* from) const;
  BackwardInputs backward_inputs(const keel_backward_inputs* from) const;
  Gradients gradients(const keel_gradients* from) const;
  Tangents tangents(const keel_tangents* from) const;
  JvpInputs jvp_inputs(const keel_jvp_inputs* from) const;
  JvpOutputs jvp_outputs(const keel_jvp_outputs* from) const;
  DoubleGradients double_gradients(const keel_double_gradients* from) const;
  std::vector<Partial> parts(const keel_partial* from, std::int64_t count) const;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(ErrorCode::invalid_argument, concat("[", operation_, "] ", parts...));
  }

 private:
  template <class T>
  T read(const T* from, const std::string& name) const;
  // `of` comes before the name: "parts[1]."
  template <std::size_t Rank>
  BasicView<Rank, void*> view(const keel_view& from, const char* name, const std::string& of = "") const;
  ListView list(const keel_view& from, const char* name) const;
  bool flag(std::int64_t value, const char* name) const;
  void check_list(const void* data, std::int64_t count, const char* name) const;

  const char* operation_;
  BlockMask block_mask_;  // of the options
};

}  // namespace keel::c_api
