// keel._torch: scaled_dot_product_attention of plain torch tensors, compiled against torch itself. At length 1 a call
// is all overhead, and a derivative written in Python alone takes as long as torch's whole operator.
//
// It serves the torch it was compiled for. Whatever is not plain is left to the operators of keel/torch/_operator.py.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>
#include <nanobind/nanobind.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/version.h>

#include <array>
#include <optional>
#include <utility>

#include "calls.h"
#include "keel/error.h"

namespace keel::python {
namespace {

namespace nb = nanobind;
using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

const Calls* calls = nullptr;

// What a call is told beside its tensors.
struct Settings {
  bool causal = false;
  std::optional<double> scale;
};

bool is_served(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

DType dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return DType::f64;
    case at::kHalf:
      return DType::f16;
    case at::kBFloat16:
      return DType::bf16;
    case at::kBool:
      return DType::boolean;
    default:
      return DType::f32;
  }
}

// The dimensions that `tensor` lacks come first and have size 1.
template <std::size_t Rank, class Pointer>
BasicView<Rank, Pointer> view_of(const Tensor& tensor, Pointer data) {
  BasicView<Rank, Pointer> view{data, dtype_of(tensor.scalar_type()), {}, {}};
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
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

Options options_of(const Settings& settings, const Tensor& mask) {
  Options options{.causal = settings.causal ? Causal::top_left : Causal::none, .threads = at::get_num_threads()};
  if (settings.scale) options.scale = *settings.scale;
  if (mask.defined()) (mask.scalar_type() == at::kBool ? options.mask : options.bias) = read(mask);
  return options;
}

// Where the dispatcher would send an operator of these tensors, modes of this thread included.
c10::DispatchKeySet keys_of(std::initializer_list<Tensor> tensors) {
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  c10::DispatchKeySet keys = local.included_;
  for (const Tensor& tensor : tensors) {
    if (tensor.defined()) keys = keys | tensor.key_set();
  }
  return keys - local.excluded_;
}

// Dense memory of the CPU and nothing that would change what an operator means: no transform, trace, autocast, fake
// tensor or sign that is yet to be turned.
bool is_plain(c10::DispatchKeySet keys) {
  using Key = c10::DispatchKey;
  constexpr c10::DispatchKeySet plain{Key::CPU, Key::AutogradCPU, Key::ADInplaceOrView, Key::BackendSelect};
  return (keys.raw_repr() & ~plain.raw_repr()) == 0;
}

// at::empty_like, without the way through the dispatcher where the layout is plain to see.
Tensor new_like(const Tensor& x) {
  if (!x.is_contiguous()) return at::empty_like(x);
  return Tensor(at::detail::empty_cpu(x.sizes(), x.scalar_type()));
}

Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Settings& settings,
               Tensor* lse) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Tensor out = new_like(q);
  Outputs outputs;
  if (lse != nullptr) {
    const at::ScalarType type = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    *lse = at::detail::empty_cpu(q.sizes().slice(0, q.dim() - 1), type);
    outputs.lse = write<3>(*lse);
  }
  RECORD_FUNCTION("keel::scaled_dot_product_attention", std::vector<c10::IValue>({q, k, v}));
  calls->forward(read(q), read(k), read(v), write(out), options_of(settings, mask), outputs);
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
    const Tensor q = q_.unpack(), k = k_.unpack(), v = v_.unpack(), mask = mask_.unpack(), lse = lse_.unpack();
    const Tensor out = out_.unpack(c10::intrusive_ptr<Node>::unsafe_reclaim_from_nonowning(this));
    // A second derivative, which the operator refuses, or compiled autograd, which traces.
    if (at::GradMode::is_enabled() || !is_plain(keys_of({dout, q, k, v, out, lse, mask})))
      return by_operator(dout, q, k, v, out, lse, mask);

    const at::AutoDispatchBelowADInplaceOrView below;
    variable_list gradients(3);
    if (task_should_compute_output(0)) gradients[0] = new_like(q);
    if (task_should_compute_output(1)) gradients[1] = new_like(k);
    if (task_should_compute_output(2)) gradients[2] = new_like(v);
    calls->backward({read(q), read(k), read(v), read(out), read<3>(lse), read(dout), {}},
                    {write(gradients[0]), write(gradients[1]), write(gradients[2]), {}, {}, {}},
                    options_of(settings_, mask));
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
  // torch.ops.keel.attention_backward, of any tensors and itself differentiable (into an error).
  variable_list by_operator(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                            const Tensor& lse, const Tensor& mask) {
    const bool boolean = mask.defined() && mask.scalar_type() == at::kBool;
    const auto optional = [](const Tensor& tensor) { return tensor.defined() ? c10::IValue(tensor) : c10::IValue(); };
    torch::jit::Stack stack{dout, c10::IValue(), q, k, v, out, lse};
    stack.push_back(boolean ? mask : c10::IValue());
    stack.push_back(boolean ? c10::IValue() : optional(mask));
    stack.resize(stack.size() + 8);  // the other tensors among the options
    const c10::IValue none;
    for (const c10::IValue& number :
         {c10::IValue(settings_.scale), none, c10::IValue(settings_.causal ? 1 : 0), none, none, c10::IValue(0.0)}) {
      stack.push_back(number);
    }
    c10::List<bool> wanted;
    for (std::size_t i = 0; i < 6; ++i) wanted.push_back(i < 3 && task_should_compute_output(i));
    stack.emplace_back(wanted);
    c10::Dispatcher::singleton().findSchemaOrThrow("keel::attention_backward", "").callBoxed(&stack);
    variable_list gradients(3);
    for (std::size_t i = 0; i < 3; ++i) {
      if (wanted[i]) gradients[i] = stack[i].toTensor();
    }
    return gradients;
  }

  SavedVariable q_, k_, v_, mask_, out_, lse_;
  Settings settings_;
};

Tensor with_derivative(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                       const Settings& settings) {
  const auto node = c10::make_intrusive<Backward>(q, k, v, mask, settings);
  Tensor lse;
  Tensor out = forward(q, k, v, mask, settings, &lse);
  torch::autograd::set_history(out, node);
  node->keep(out, lse);
  return out;
}

// Shapes and dtypes that the library takes as they are. What is wrong about others, or how they broadcast, the
// operator's side knows.
bool fits(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool grouped) {
  const std::int64_t rank = q.dim();
  if (rank < (grouped ? 3 : 2) || rank > 4 || k.dim() != rank || v.dim() != rank) return false;
  if (!is_served(q.scalar_type()) || k.scalar_type() != q.scalar_type() || v.scalar_type() != q.scalar_type())
    return false;
  if (k.sizes() != v.sizes() || k.size(-1) != q.size(-1) || q.size(-1) < 1) return false;
  for (std::int64_t i = 0; i + 2 < rank; ++i) {
    if (grouped && i == rank - 3) continue;
    if (k.size(i) != q.size(i)) return false;
  }
  if (grouped && (k.size(-3) == 0 || q.size(-3) % k.size(-3) != 0)) return false;
  if (!mask.defined()) return true;
  const at::ScalarType type = mask.scalar_type();
  return mask.dim() <= 4 && (type == at::kBool || type == at::kFloat || type == q.scalar_type());
}

bool read_number(nb::handle object, std::optional<double>& number) {
  if (object.is_none()) return true;
  if (!PyFloat_CheckExact(object.ptr()) && !PyLong_CheckExact(object.ptr())) return false;
  number = PyFloat_AsDouble(object.ptr());
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();  // an integer beyond all doubles
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
  const auto& [q, k, v, mask] = tensors;
  Settings settings{.causal = is_causal.ptr() == Py_True, .scale = {}};
  if (!PyBool_Check(is_causal.ptr()) || !PyBool_Check(enable_gqa.ptr()) || !read_number(scale, settings.scale))
    return nb::none();
  if (mask.defined() && (settings.causal || mask.requires_grad())) return nb::none();
  const c10::DispatchKeySet keys = keys_of({q, k, v, mask});
  if (!is_plain(keys) || at::impl::torch_function_mode_enabled()) return nb::none();
  if (!fits(q, k, v, mask, enable_gqa.ptr() == Py_True)) return nb::none();

  const bool differentiable = at::GradMode::is_enabled() && keys.has(c10::DispatchKey::AutogradCPU) &&
                              (q.requires_grad() || k.requires_grad() || v.requires_grad());
  Tensor out;
  try {
    const nb::gil_scoped_release released;
    out = differentiable ? with_derivative(q, k, v, mask, settings) : forward(q, k, v, mask, settings, nullptr);
  } catch (const Error&) {
    throw;         // which keel._core has made known
  } catch (...) {  // of torch, or raised in Python by a hook
    torch::translate_exception_to_python(std::current_exception());
    throw nb::python_error();
  }
  return nb::steal(THPVariable_Wrap(std::move(out)));
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
  m.def("sdpa", &sdpa, nb::arg("query").none(), nb::arg("key").none(), nb::arg("value").none(),
        nb::arg("attn_mask").none(), nb::arg("is_causal").none(), nb::arg("scale").none(), nb::arg("enable_gqa").none(),
        "Attention of plain tensors; None for whatever else.");
}
