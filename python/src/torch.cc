// keel._torch: scaled_dot_product_attention of plain torch tensors, compiled against torch itself. At length 1 a call
// is all overhead, and the derivative alone, written in Python, would take as long as torch's whole operator.
//
// It works only with the torch it was compiled for. What is not plain is left to the operators of
// keel/torch/_operator.py.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <nanobind/nanobind.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calls.h"
#include "dlpack.h"
#include "keel/error.h"

namespace keel::python {
namespace {

namespace nb = nanobind;
using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

const Calls* calls = nullptr;
const dlpack::Exchange* exchange = nullptr;  // torch's

constexpr std::int64_t kSmall = 1 << 17;  // multiply-adds of q·kᵀ

// The arguments of a call that are not tensors.
struct Settings {
  bool causal = false;
  std::optional<double> scale;
};

// The library's dtype for a tensor's; nothing if it has none.
std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::f64;
    case at::kFloat:
      return DType::f32;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kBool:
      return DType::boolean;
    default:
      return {};
  }
}

// Dimensions that `tensor` lacks come first and have size 1.
template <std::size_t Rank, class Pointer>
BasicView<Rank, Pointer> view_of(const Tensor& tensor, Pointer data) {
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  TORCH_INTERNAL_ASSERT(sizes.size() <= Rank);
  BasicView<Rank, Pointer> view{data, dtype_of(tensor.scalar_type()).value(), {}, {}};
  if (tensor.is_cuda()) view.device = {DeviceKind::cuda, tensor.get_device()};
  view.shape.fill(1);
  std::copy(sizes.begin(), sizes.end(), view.shape.end() - sizes.size());
  std::copy(strides.begin(), strides.end(), view.strides.end() - strides.size());
  return view;
}
template <std::size_t Rank = 4>
BasicView<Rank, const void*> read(const Tensor& tensor) {
  return view_of<Rank>(tensor, tensor.const_data_ptr());
}
template <std::size_t Rank = 4>
BasicView<Rank, void*> write(const Tensor& tensor) {
  return tensor.defined() ? view_of<Rank>(tensor, tensor.mutable_data_ptr()) : BasicView<Rank, void*>{};
}

// The stream that torch works on where `tensor` is; null on the CPU.
void* stream_of(const Tensor& tensor) {
  void* stream = nullptr;
  if (!tensor.is_cuda()) return stream;
  TORCH_CHECK(exchange->stream(dlpack::kCuda, tensor.get_device(), &stream) == 0, "expected torch's current stream on ",
              tensor.device(), ", got none");
  return stream;
}

Options options_of(const Settings& settings, const Tensor& q, const Tensor& mask) {
  Options options{.causal = settings.causal ? Causal::top_left : Causal::none,
                  .threads = at::get_num_threads(),
                  .stream = stream_of(q)};
  if (settings.scale) options.scale = *settings.scale;
  if (mask.defined()) (mask.scalar_type() == at::kBool ? options.mask : options.bias) = read(mask);
  return options;
}

// Where the dispatcher would send an operator with these tensors, given the modes of this thread.
template <class... Tensors>
c10::DispatchKeySet keys_of(const Tensors&... tensors) {
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const auto keys = [](const Tensor& tensor) { return tensor.defined() ? tensor.key_set() : c10::DispatchKeySet(); };
  return (local.included_ | ... | keys(tensors)) - local.excluded_;
}

// Dense memory, all of the CPU or all of CUDA devices, and nothing that would change what an operator means: no
// transform, trace, fake tensor or lazy negation. Autocast is sdpa()'s to see to.
bool is_plain(c10::DispatchKeySet keys) {
  using Key = c10::DispatchKey;
  constexpr c10::DispatchKeySet any{Key::ADInplaceOrView, Key::BackendSelect, Key::AutocastCPU, Key::AutocastCUDA};
  constexpr c10::DispatchKeySet cpu = any | c10::DispatchKeySet{Key::CPU, Key::AutogradCPU};
  constexpr c10::DispatchKeySet cuda = any | c10::DispatchKeySet{Key::CUDA, Key::AutogradCUDA};
  return (keys.raw_repr() & ~cpu.raw_repr()) == 0 || (keys.raw_repr() & ~cuda.raw_repr()) == 0;
}

bool mask_fits(const Tensor& mask, const Tensor& q, const Tensor& k) {
  const std::int64_t rank = q.dim();
  if (mask.dim() > rank || mask.numel() == 0) return false;
  for (std::int64_t i = 1; i <= mask.dim(); ++i) {
    const std::int64_t whole = i == 1 ? k.size(-2) : q.size(-i);
    if (mask.size(-i) != 1 && mask.size(-i) != whole) return false;
  }
  return true;
}

// Shapes and, below, dtypes that the library takes as they are. The operator broadcasts the others, or says what is
// wrong.
bool shapes_fit(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool grouped) {
  const std::int64_t rank = q.dim();
  if (rank < (grouped ? 3 : 2) || rank > 4 || k.dim() != rank || v.dim() != rank) return false;
  if (k.device() != q.device() || v.device() != q.device() || (mask.defined() && mask.device() != q.device()))
    return false;
  if (k.sizes() != v.sizes() || k.size(-1) != q.size(-1) || q.size(-1) < 1) return false;
  for (std::int64_t i = 0; i + 2 < rank; ++i) {
    if (grouped && i == rank - 3) continue;
    if (k.size(i) != q.size(i)) return false;
  }
  if (grouped && (k.size(-3) == 0 || q.size(-3) % k.size(-3) != 0)) return false;
  return !mask.defined() || mask_fits(mask, q, k);
}
bool dtypes_fit(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  const at::ScalarType type = q.scalar_type();
  if (!dtype_of(type) || type == at::kBool || k.scalar_type() != type || v.scalar_type() != type) return false;
  if (!mask.defined()) return true;
  return mask.scalar_type() == at::kBool || mask.scalar_type() == at::kFloat || mask.scalar_type() == type;
}

// The dtype of lse.
at::ScalarType row_type(const Tensor& q) { return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// at::empty_like, bypassing the dispatcher for contiguous tensors on the CPU.
Tensor new_like(const Tensor& x) {
  if (!x.is_contiguous() || !x.is_cpu()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return at::empty_like(x);
  }
  return Tensor(at::detail::empty_cpu(x.sizes(), x.scalar_type()));
}

// For lse: a number per row of q.
Tensor new_rows(const Tensor& q) {
  const at::IntArrayRef sizes = q.sizes().slice(0, q.dim() - 1);
  if (q.is_cpu()) return Tensor(at::detail::empty_cpu(sizes, row_type(q)));
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::empty(sizes, q.options().dtype(row_type(q)));
}

Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Settings& settings,
               Tensor* lse) {
  Tensor out = new_like(q);
  Outputs outputs;
  if (lse != nullptr) {
    *lse = new_rows(q);
    outputs.lse = write<3>(*lse);
  }
  RECORD_FUNCTION("keel::scaled_dot_product_attention", std::vector<c10::IValue>({q, k, v}));
  calls->forward(read(q), read(k), read(v), write(out), options_of(settings, q, mask), outputs);
  return out;
}

// The derivative, as a node of torch's graph.
class Backward : public torch::autograd::Node {
 public:
  Backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Settings& settings)
      : Node(torch::autograd::collect_next_edges(q, k, v)),
        q_(q, false),
        k_(k, false),
        v_(v, false),
        mask_(mask, false),
        settings_(settings) {}

  void keep(const Tensor& out, const Tensor& lse) {
    out_ = SavedVariable(out, true);
    lse_ = SavedVariable(lse, false);
  }

  std::string name() const override { return "KeelAttentionBackward"; }

  variable_list apply(variable_list&& arrived) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Tensor& dout = arrived[0];
    if (!dout.defined()) return variable_list(3);
    const Values x = {q_.unpack(), k_.unpack(), v_.unpack(), mask_.unpack(), out_.unpack(getptr()), lse_.unpack()};
    if (!is_direct(x, dout)) return by_operator(x, dout);

    variable_list gradients(3);
    if (task_should_compute_output(0)) gradients[0] = new_like(x.q);
    if (task_should_compute_output(1)) gradients[1] = new_like(x.k);
    if (task_should_compute_output(2)) gradients[2] = new_like(x.v);
    try {
      calls->backward({read(x.q), read(x.k), read(x.v), read(x.out), read<3>(x.lse), read(dout), {}},
                      {write(gradients[0]), write(gradients[1]), write(gradients[2]), {}, {}, {}},
                      options_of(settings_, x.q, x.mask));
    } catch (const Error& error) {  // torch's engine knows only its own exceptions
      if (error.code() == ErrorCode::out_of_memory) C10_THROW_ERROR(OutOfMemoryError, error.what());
      if (error.code() == ErrorCode::wrong_dtype) C10_THROW_ERROR(TypeError, error.what());
      if (error.code() == ErrorCode::device) C10_THROW_ERROR(Error, error.what());
      if (error.code() == ErrorCode::unsupported) C10_THROW_ERROR(NotImplementedError, error.what());
      C10_THROW_ERROR(ValueError, error.what());
    }
    return gradients;
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable* saved : {&q_, &k_, &v_, &mask_, &out_, &lse_}) saved->reset_data();
  }

  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override {
    for (const SavedVariable* saved : {&q_, &k_, &v_, &mask_, &lse_}) args.collect(*saved, false);
    args.collect(out_, true);
    args.collect(settings_.causal);
    args.collect(settings_.scale);
  }
  variable_list apply_with_saved(const variable_list& arrived,
                                 torch::dynamo::autograd::SwapSavedVariables& swap) override {
    const std::array<SavedVariable*, 6> all{&q_, &k_, &v_, &mask_, &lse_, &out_};
    for (SavedVariable* saved : all) swap.before(*saved);
    variable_list gradients = apply(variable_list(arrived));
    for (SavedVariable* saved : all) swap.after(*saved);
    return gradients;
  }

 private:
  struct Values {
    Tensor q, k, v, mask, out, lse;
  };

  // Whether the library can take everything as it is. Hooks may have replaced saved tensors by anything; compiled
  // autograd traces; second derivatives are the operator's.
  static bool is_direct(const Values& x, const Tensor& dout) {
    const auto is_like_q = [&](const Tensor& y) {
      return y.scalar_type() == x.q.scalar_type() && y.sizes() == x.q.sizes() && y.device() == x.q.device();
    };
    return !at::GradMode::is_enabled() && is_plain(keys_of(dout, x.q, x.k, x.v, x.out, x.lse, x.mask)) &&
           shapes_fit(x.q, x.k, x.v, x.mask, x.q.dim() > 2) && dtypes_fit(x.q, x.k, x.v, x.mask) && is_like_q(x.out) &&
           is_like_q(dout) && x.lse.scalar_type() == row_type(x.q) && x.lse.dim() == x.q.dim() - 1;
  }

  // torch.ops.keel.attention_backward, which takes any tensors, and has a derivative of its own.
  variable_list by_operator(const Values& x, const Tensor& dout) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("keel::attention_backward", "");
    c10::List<bool> wanted;  // one per gradient, of which dq, dk and dv come first
    for (std::size_t i = 0; i < op.schema().returns().size(); ++i) {
      wanted.push_back(i < 3 && task_should_compute_output(i));
    }
    const std::pair<std::string_view, c10::IValue> given[] = {
        {"dout", dout},
        {"q", x.q},
        {"k", x.k},
        {"v", x.v},
        {"out", x.out},
        {"lse", x.lse},
        {"wanted", wanted},
        {"mask", x.mask.defined() ? c10::IValue(x.mask) : c10::IValue()},
        {"scale", settings_.scale},
        {"causal", settings_.causal ? c10::IValue("top_left") : c10::IValue()}};
    torch::jit::Stack stack;
    for (const c10::Argument& argument : op.schema().arguments()) {  // None for the options that are not given
      const auto* at = std::find_if(std::begin(given), std::end(given),
                                    [&](const auto& each) { return each.first == argument.name(); });
      stack.push_back(at == std::end(given) ? c10::IValue() : at->second);
    }
    op.callBoxed(&stack);
    variable_list gradients(3);
    for (std::size_t i = 0; i < 3; ++i) {
      if (wanted[i]) gradients[i] = stack[i].toTensor();
    }
    return gradients;
  }

  SavedVariable q_, k_, v_, mask_, out_, lse_;
  Settings settings_;
};

// Nodes count their references themselves in newer versions of torch.
template <class Node, class... Arguments>
auto new_node(const Arguments&... arguments) {
  if constexpr (std::is_base_of_v<c10::intrusive_ptr_target, Node>) {
    return c10::make_intrusive<Node>(arguments...);
  } else {
    return std::shared_ptr<Node>(new Node(arguments...), [](Node* node) { deleteNode(node); });
  }
}

Tensor with_derivative(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                       const Settings& settings) {
  const auto node = new_node<Backward>(q, k, v, mask, settings);
  Tensor lse;
  Tensor out = forward(q, k, v, mask, settings, &lse);
  torch::autograd::set_history(out, node);
  node->keep(out, lse);
  return out;
}

// What autocast asks for, if it is on: every tensor of numbers, but float64, in its dtype.
void autocast(c10::DispatchKeySet keys, std::array<Tensor, 4>& tensors) {
  if (!keys.has(c10::DispatchKey::AutocastCPU) && !keys.has(c10::DispatchKey::AutocastCUDA)) return;
  for (Tensor& x : tensors) {
    if (!x.defined() || !x.is_floating_point() || x.scalar_type() == at::kDouble) continue;
    x = x.to(at::autocast::get_autocast_dtype(x.device().type()));
  }
}

// False for what the library would refuse.
bool read_number(nb::handle object, std::optional<double>& number) {
  if (object.is_none()) return true;
  if (!PyFloat_CheckExact(object.ptr()) && !PyLong_CheckExact(object.ptr())) return false;
  number = PyFloat_AsDouble(object.ptr());
  if (!PyErr_Occurred()) return std::isfinite(*number);
  PyErr_Clear();  // an integer too large for a double
  return false;
}

nb::object sdpa(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask, nb::handle is_causal,
                nb::handle scale, nb::handle enable_gqa) {
  std::array<Tensor, 4> tensors;
  const std::array<nb::handle, 4> objects{query, key, value, attn_mask};
  for (std::size_t i = 0; i < 4; ++i) {
    if (i == 3 && objects[i].is_none()) continue;
    if (!THPVariable_CheckExact(objects[i].ptr())) return nb::none();
    tensors[i] = THPVariable_Unpack(objects[i].ptr());
    if (tensors[i]._fw_grad(0).defined()) return nb::none();
  }
  auto& [q, k, v, mask] = tensors;
  Settings settings{.causal = is_causal.ptr() == Py_True, .scale = {}};
  if (!PyBool_Check(is_causal.ptr()) || !PyBool_Check(enable_gqa.ptr()) || !read_number(scale, settings.scale))
    return nb::none();
  if (mask.defined() && mask.requires_grad()) return nb::none();
  const c10::DispatchKeySet keys = keys_of(q, k, v, mask);
  if (!is_plain(keys) || at::impl::torch_function_mode_enabled()) return nb::none();
  if (!shapes_fit(q, k, v, mask, enable_gqa.ptr() == Py_True)) return nb::none();

  const bool tracked = keys.has(c10::DispatchKey::AutogradCPU) || keys.has(c10::DispatchKey::AutogradCUDA);
  const bool differentiable =
      at::GradMode::is_enabled() && tracked && (q.requires_grad() || k.requires_grad() || v.requires_grad());
  Tensor out;
  try {
    // On the CPU a call of a few microseconds is over before another thread could take the GIL.
    std::optional<nb::gil_scoped_release> released;
    if (q.is_cuda() || q.numel() > kSmall || k.size(-2) > kSmall || q.numel() * k.size(-2) > kSmall) released.emplace();
    autocast(keys, tensors);
    if (dtypes_fit(q, k, v, mask))
      out = differentiable ? with_derivative(q, k, v, mask, settings) : forward(q, k, v, mask, settings, nullptr);
  } catch (const Error&) {
    throw;         // translated by keel._core
  } catch (...) {  // torch's, or raised in Python by a hook
    torch::translate_exception_to_python(std::current_exception());
    throw nb::python_error();
  }
  return out.defined() ? nb::steal(THPVariable_Wrap(std::move(out))) : nb::none();
}

}  // namespace
}  // namespace keel::python

NB_MODULE(_torch, m) {
  using namespace keel::python;
  m.doc() = "The compiled part of keel.torch.";
  m.attr("torch") = TORCH_VERSION;
  const nb::object capsule = nb::module_::import_("keel._core").attr("calls");
  calls = static_cast<const Calls*>(PyCapsule_GetPointer(capsule.ptr(), kCallsName));
  if (calls == nullptr) throw nb::python_error();
  const nb::object table = nb::module_::import_("torch").attr("Tensor").attr("__dlpack_c_exchange_api__");
  exchange = static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(table.ptr(), "dlpack_exchange_api"));
  if (exchange == nullptr) throw nb::python_error();
  m.def("sdpa", &sdpa, nb::arg("query").none(), nb::arg("key").none(), nb::arg("value").none(),
        nb::arg("attn_mask").none(), nb::arg("is_causal").none(), nb::arg("scale").none(), nb::arg("enable_gqa").none(),
        "Attention of plain tensors; None for anything else.");
}
