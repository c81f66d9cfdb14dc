#include "sdpa.h"

#include <array>
#include <optional>

#include "keel/attention.h"
#include "options.h"

namespace keel::python {
namespace {

// Arrays of one call, on the stack.
template <std::size_t Count>
class Few {
 public:
  explicit Few(const char* operation) : operation_(operation) {}

  const Array& read(const char* name, nb::handle object, Access access = Access::read) {
    return arrays_[count_++].emplace(Place{operation_, name}, object, access);
  }

 private:
  const char* operation_;
  std::size_t count_ = 0;
  std::array<std::optional<Array>, Count> arrays_;
};

void set_mask(Options& options, const TensorView& view) {
  (view.dtype == DType::boolean ? options.mask : options.bias) = view;
}

void report(void*, const char*, const char*) {}

// A new tensor of the kind of `like`, (B, H, N) of `shape`, and its memory.
nb::object new_rows(nb::handle like, const Array& q, DType dtype, void** data) {
  const dlpack::Exchange* exchange = exchange_of(like);
  if (exchange == nullptr || exchange->allocate == nullptr || exchange->to_object == nullptr) return {};
  std::array<std::int64_t, Array::kMaxRank> shape{};
  for (int i = 0; i + 1 < q.rank(); ++i) shape[i] = q.size(i);
  dlpack::Tensor prototype{.data = nullptr,
                           .device = {dlpack::kCpu, 0},
                           .ndim = q.rank() - 1,
                           .dtype = {dlpack::kFloat, static_cast<std::uint8_t>(8 * size_of(dtype)), 1},
                           .shape = shape.data(),
                           .strides = nullptr,
                           .byte_offset = 0};
  dlpack::ManagedVersioned* tensor = nullptr;
  void* object = nullptr;
  if (exchange->allocate(&prototype, &tensor, nullptr, report) != 0) return {};
  *data = static_cast<char*>(tensor->tensor.data) + tensor->tensor.byte_offset;
  if (exchange->to_object(tensor, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace

nb::object sdpa(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle mask, nb::handle causal,
                nb::handle scale, nb::handle grouped, int threads, bool with_lse) {
  const nb::object no = nb::borrow(Py_False);
  if (!PyBool_Check(causal.ptr()) || !PyBool_Check(grouped.ptr())) return no;
  const bool groups = grouped.ptr() == Py_True;
  Options options{.causal = causal.ptr() == Py_True ? Causal::top_left : Causal::none, .threads = threads};
  Outputs outputs;
  TensorView q_view, k_view, v_view;
  MutableTensorView out_view;
  nb::object result = nb::borrow(Py_True);
  Few<5> arrays("attention");
  try {
    const Array& q_array = arrays.read("q", q);
    const Array& k_array = arrays.read("k", k);
    const Array& v_array = arrays.read("v", v);
    const int rank = q_array.rank();
    if (k_array.rank() != rank || v_array.rank() != rank || rank < (groups ? 3 : 2) || rank > 4) return no;
    q_view = q_array.view<4>(), k_view = k_array.view<4>(), v_view = v_array.view<4>();
    out_view = arrays.read("out", out, Access::write).view<4>();
    if (!mask.is_none()) {
      const TensorView view = arrays.read("attn_mask", mask).view<4>();
      if (view.dtype != DType::boolean && view.dtype != q_view.dtype && view.dtype != DType::f32) return no;
      set_mask(options, view);
    }
    const auto& [batch, heads, n_q, d] = q_view.shape;
    const auto& [k_batch, kv_heads, n_k, d_k] = k_view.shape;
    if (!is_floating(q_view.dtype) || k_view.dtype != q_view.dtype || v_view.dtype != q_view.dtype) return no;
    if (k_batch != batch || d_k != d || d < 1 || v_view.shape != k_view.shape) return no;
    if (groups ? kv_heads == 0 || heads % kv_heads != 0 : kv_heads != heads) return no;
    if (with_lse) {
      outputs.lse = {nullptr, accumulation_dtype(q_view.dtype), {batch, heads, n_q}, {heads * n_q, n_q, 1}};
      result = new_rows(q, q_array, outputs.lse.dtype, &outputs.lse.data);
      if (!result.is_valid()) return no;
    }
  } catch (const nb::builtin_exception&) {
    return no;
  }
  if (!scale.is_none()) options.scale = read_number({"attention", "scale"}, scale);
  without_lock([&] { attention(q_view, k_view, v_view, out_view, options, outputs); });
  return result;
}

void sdpa_backward(nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse, nb::handle dout,
                   nb::handle dq, nb::handle dk, nb::handle dv, nb::handle mask, bool causal, nb::handle scale,
                   int threads) {
  Few<10> arrays("attention_backward");
  const BackwardInputs inputs{.q = arrays.read("q", q).view<4>(),
                              .k = arrays.read("k", k).view<4>(),
                              .v = arrays.read("v", v).view<4>(),
                              .out = arrays.read("out", out).view<4>(),
                              .lse = arrays.read("lse", lse).view<3>(),
                              .dout = arrays.read("dout", dout).view<4>(),
                              .dlse = {}};
  Options options{.causal = causal ? Causal::top_left : Causal::none, .threads = threads};
  if (!scale.is_none()) options.scale = read_number({"attention_backward", "scale"}, scale);
  if (!mask.is_none()) set_mask(options, arrays.read("attn_mask", mask).view<4>());
  const auto gradient = [&](const char* name, nb::handle object) {
    return object.is_none() ? MutableTensorView{} : arrays.read(name, object, Access::write).view<4>();
  };
  const Gradients gradients{.dq = gradient("dq", dq),
                            .dk = gradient("dk", dk),
                            .dv = gradient("dv", dv),
                            .dbias = {},
                            .dscale = {},
                            .dsinks = {}};
  without_lock([&] { attention_backward(inputs, gradients, options); });
}

}  // namespace keel::python
