// keel._jax: attention and its gradients as custom calls of XLA, for keel.jax. It is compiled against the headers of
// XLA's foreign function interface, which jaxlib brings along. That is a C interface of numbered versions, so that one
// compiled part serves later versions of jaxlib too.
//
// A call says by its attributes "arguments" and "results" what its buffers are, "q,k,v,bias" and "out,lse", and has one
// more attribute per option that is no array. All buffers are contiguous. Those of 64-bit integers have one more
// dimension, of two 32-bit words, because JAX has no 64-bit numbers by default. Dimensions in front of the usual ones
// come from vmap: every entry along them is a call of its own, and size 1 there is shared by all.

#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "calls.h"
#include "keel/error.h"

namespace keel::python {
namespace {

namespace nb = nanobind;
namespace ffi = xla::ffi;

const Calls* calls = nullptr;

[[noreturn]] void fault(const std::string& text) { throw Error(ErrorCode::invalid_argument, "[keel.jax] " + text); }

// Everything that a forward or a backward call takes and writes.
struct Call {
  BackwardInputs inputs;
  MutableTensorView out;
  Outputs outputs;
  Gradients gradients;
  Options options;
  BlockMask block_mask;
};

// One entry of a buffer: the dimensions after those that come from vmap.
struct Entry {
  void* data;
  DType dtype;
  const std::int64_t* shape;
  Device device;
};

struct Row {
  std::string_view name;
  std::size_t rank;
  bool in_words;  // 64-bit integers
  void (*set)(Call&, const Entry&);
};

template <std::size_t Rank, class Pointer>
void set_view(BasicView<Rank, Pointer>& view, const Entry& entry) {
  view.data = entry.data;
  view.dtype = entry.dtype;
  std::copy_n(entry.shape, Rank, view.shape.begin());
  view.strides = contiguous_strides(view.shape);
  view.device = entry.device;
}

template <auto First, auto... Rest>
constexpr auto& member(auto& object) {
  if constexpr (sizeof...(Rest) == 0) {
    return object.*First;
  } else {
    return member<Rest...>(object.*First);
  }
}

// The row of a view, a member of a member of a call.
template <auto... Members>
constexpr Row view_row(std::string_view name, bool in_words = false) {
  using View = std::remove_cvref_t<decltype(member<Members...>(std::declval<Call&>()))>;
  return {name, std::tuple_size_v<decltype(View::shape)>, in_words,
          [](Call& call, const Entry& entry) { set_view(member<Members...>(call), entry); }};
}

// The driver's functions, from the driver that XLA has loaded.
template <class Function>
Function from_driver(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const symbol = driver == nullptr ? nullptr : dlsym(driver, name);
  if (symbol == nullptr) throw Error(ErrorCode::device, std::string("[keel.jax] expected the CUDA driver's ") + name);
  Function function = nullptr;
  std::memcpy(&function, &symbol, sizeof function);
  return function;
}

// The library takes the seed from the host. On a GPU the stream is waited for.
void set_seed(Call& call, const Entry& entry) {
  std::uint64_t& seed = call.options.seed;
  if (entry.device == Device{}) {
    std::memcpy(&seed, entry.data, sizeof seed);
    return;
  }
  static const auto copy = from_driver<int (*)(void*, std::uint64_t, std::size_t, void*)>("cuMemcpyDtoHAsync_v2");
  static const auto wait = from_driver<int (*)(void*)>("cuStreamSynchronize");
  const auto from = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(entry.data));
  int status = copy(&seed, from, sizeof seed, call.options.stream);
  if (status == 0) status = wait(call.options.stream);
  if (status != 0) throw Error(ErrorCode::device, "[attention] seed: CUDA error " + std::to_string(status));
}

constexpr bool kInWords = true;

constexpr Row kArguments[] = {
    view_row<&Call::inputs, &BackwardInputs::q>("q"),
    view_row<&Call::inputs, &BackwardInputs::k>("k"),
    view_row<&Call::inputs, &BackwardInputs::v>("v"),
    view_row<&Call::inputs, &BackwardInputs::out>("out"),
    view_row<&Call::inputs, &BackwardInputs::lse>("lse"),
    view_row<&Call::inputs, &BackwardInputs::dout>("dout"),
    view_row<&Call::inputs, &BackwardInputs::dlse>("dlse"),
    view_row<&Call::options, &Options::mask>("mask"),
    view_row<&Call::options, &Options::bias>("bias"),
    view_row<&Call::block_mask, &BlockMask::offsets>("block_mask.offsets", kInWords),
    view_row<&Call::block_mask, &BlockMask::blocks>("block_mask.blocks", kInWords),
    view_row<&Call::block_mask, &BlockMask::tiles>("block_mask.tiles"),
    view_row<&Call::options, &Options::scale_tensor>("scale"),
    view_row<&Call::options, &Options::alibi>("alibi"),
    view_row<&Call::options, &Options::relative_bias>("relative_bias"),
    view_row<&Call::options, &Options::sinks>("sinks"),
    view_row<&Call::options, &Options::q_lengths>("q_lengths", kInWords),
    view_row<&Call::options, &Options::k_lengths>("k_lengths", kInWords),
    view_row<&Call::options, &Options::k_starts>("k_starts", kInWords),
    view_row<&Call::options, &Options::q_offsets>("q_offsets", kInWords),
    view_row<&Call::options, &Options::k_offsets>("k_offsets", kInWords),
    {"seed", 0, kInWords, set_seed},
};

constexpr Row kResults[] = {
    view_row<&Call::out>("out"),
    view_row<&Call::outputs, &Outputs::lse>("lse"),
    view_row<&Call::outputs, &Outputs::max_logit>("max_logit"),
    view_row<&Call::outputs, &Outputs::entropy>("entropy"),
    view_row<&Call::outputs, &Outputs::max_weight>("max_weight"),
    view_row<&Call::outputs, &Outputs::logit_mean>("logit_mean"),
    view_row<&Call::outputs, &Outputs::logit_var>("logit_var"),
    view_row<&Call::outputs, &Outputs::visible>("visible", kInWords),
    view_row<&Call::outputs, &Outputs::logit_count>("logit_count", kInWords),
    view_row<&Call::gradients, &Gradients::dq>("dq"),
    view_row<&Call::gradients, &Gradients::dk>("dk"),
    view_row<&Call::gradients, &Gradients::dv>("dv"),
    view_row<&Call::gradients, &Gradients::dbias>("dbias"),
    view_row<&Call::gradients, &Gradients::dscale>("dscale"),
    view_row<&Call::gradients, &Gradients::dsinks>("dsinks"),
    view_row<&Call::gradients, &Gradients::drelative_bias>("drelative_bias"),
};

DType dtype_of(ffi::DataType type, bool in_words) {
  if (in_words && (type == ffi::DataType::S32 || type == ffi::DataType::U32)) return DType::i64;
  switch (type) {
    case ffi::DataType::F64:
      return DType::f64;
    case ffi::DataType::F32:
      return DType::f32;
    case ffi::DataType::F16:
      return DType::f16;
    case ffi::DataType::BF16:
      return DType::bf16;
    case ffi::DataType::PRED:
      return DType::boolean;
    default:
      fault("expected a buffer of a dtype that Keel has, got XLA's " + std::to_string(static_cast<int>(type)));
  }
}

// A buffer of a call, and what it is.
struct Operand {
  const Row* row;
  ffi::AnyBuffer buffer;

  std::size_t rank() const { return row->rank + (row->in_words ? 1 : 0); }
  ffi::Span<const std::int64_t> batch() const {
    return {buffer.dimensions().begin(), buffer.dimensions().size() - rank()};
  }

  // Entry `index` of those that vmap made, in row-major order of `sizes`.
  Entry entry(std::int64_t index, const std::vector<std::int64_t>& sizes, const Device& device) const {
    const auto all = buffer.dimensions();
    std::int64_t step = static_cast<std::int64_t>(ffi::ByteWidth(buffer.element_type())), offset = 0;
    for (std::size_t i = sizes.size(); i < all.size(); ++i) step *= all[i];
    for (std::size_t i = sizes.size(); i-- > 0; index /= sizes[i]) {
      if (all[i] == 1) continue;
      offset += index % sizes[i] * step;
      step *= all[i];
    }
    return {static_cast<char*>(buffer.untyped_data()) + offset, dtype_of(buffer.element_type(), row->in_words),
            all.begin() + sizes.size(), device};
  }
};

// The buffers that `names`, separated by commas, say they are.
template <std::size_t Rows, class Buffers, class Get>
std::vector<Operand> operands(const Row (&rows)[Rows], std::string_view names, const Buffers& buffers, Get get) {
  std::vector<Operand> found;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(name.size() + 1, names.size()));
    const Row* const row = std::find_if(rows, rows + Rows, [&](const Row& each) { return each.name == name; });
    const auto buffer = get(i);
    if (row == rows + Rows || !buffer.has_value()) fault("expected the name of a buffer, got " + std::string(name));
    found.push_back({row, *buffer});
    if (found.back().buffer.dimensions().size() < found.back().rank()) {
      fault(std::string(name) + ": expected more dimensions");
    }
  }
  return found;
}

void read_attributes(const ffi::Dictionary& given, Options& options) {
  const auto read = [&]<class Value>(const char* name, Value, auto set) {
    if (!given.contains(name)) return;
    const auto value = given.get<Value>(name);
    if (!value.has_value()) fault(std::string(name) + ": expected another type of attribute");
    set(*value);
  };
  using Integers = ffi::Span<const std::int64_t>;
  read("scale", double{}, [&](double x) { options.scale = x; });
  read("softcap", double{}, [&](double x) { options.softcap = x; });
  read("dropout", double{}, [&](double x) { options.dropout = x; });
  read("seed", std::uint64_t{}, [&](std::uint64_t x) { options.seed = x; });
  read("threads", std::int64_t{}, [&](std::int64_t x) { options.threads = static_cast<int>(x); });
  read("causal", std::string_view{},
       [&](std::string_view x) { options.causal = x == "bottom_right" ? Causal::bottom_right : Causal::top_left; });
  read("window", Integers{}, [&](Integers x) { options.window = {x[0], x[1]}; });
  read("origin", Integers{}, [&](Integers x) { options.origin = {x[0], x[1], x[2], x[3]}; });
}

ffi::ErrorCode code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::out_of_memory:
      return ffi::ErrorCode::kResourceExhausted;
    case ErrorCode::unsupported:
      return ffi::ErrorCode::kUnimplemented;
    case ErrorCode::device:
      return ffi::ErrorCode::kInternal;
    default:
      return ffi::ErrorCode::kInvalidArgument;
  }
}

enum class Operation { forward, backward };

void execute(Operation operation, const Device& device, void* stream, const ffi::RemainingArgs& args,
             const ffi::RemainingRets& rets, const ffi::Dictionary& attributes) {
  Call call;
  call.options.stream = stream;
  read_attributes(attributes, call.options);
  const auto names = [&](const char* which) {
    const auto value = attributes.get<std::string_view>(which);
    if (!value.has_value()) fault(std::string("expected the attribute ") + which);
    return *value;
  };
  const auto arguments =
      operands(kArguments, names("arguments"), args, [&](std::size_t i) { return args.get<ffi::AnyBuffer>(i); });
  const auto results = operands(kResults, names("results"), rets, [&](std::size_t i) {
    auto result = rets.get<ffi::AnyBuffer>(i);
    return result.has_value() ? std::optional<ffi::AnyBuffer>(**result) : std::nullopt;
  });
  if (results.empty()) fault("expected at least one result");
  const auto batch = results[0].batch();
  const std::vector<std::int64_t> sizes(batch.begin(), batch.end());
  std::int64_t entries = 1;
  for (const std::int64_t size : sizes) entries *= size;
  for (std::int64_t index = 0; index < entries; ++index) {
    for (const Operand& each : arguments) each.row->set(call, each.entry(index, sizes, device));
    for (const Operand& each : results) each.row->set(call, each.entry(index, sizes, device));
    if (call.block_mask.offsets.given()) call.options.block_mask = &call.block_mask;
    if (operation == Operation::forward) {
      calls->forward(call.inputs.q, call.inputs.k, call.inputs.v, call.out, call.options, call.outputs);
    } else {
      calls->backward(call.inputs, call.gradients, call.options);
    }
  }
}

ffi::Error execute_or_report(Operation operation, const Device& device, void* stream, const ffi::RemainingArgs& args,
                             const ffi::RemainingRets& rets, const ffi::Dictionary& attributes) {
  try {
    execute(operation, device, stream, args, rets, attributes);
    return ffi::Error::Success();
  } catch (const Error& error) {
    return ffi::Error(code_of(error.code()), error.what());
  } catch (const std::exception& error) {
    return ffi::Error(ffi::ErrorCode::kInternal, error.what());
  }
}

template <Operation kOperation>
ffi::Error on_cpu(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attributes) {
  return execute_or_report(kOperation, {}, nullptr, args, rets, attributes);
}
template <Operation kOperation>
ffi::Error on_cuda(void* stream, std::int32_t index, ffi::RemainingArgs args, ffi::RemainingRets rets,
                   ffi::Dictionary attributes) {
  return execute_or_report(kOperation, {DeviceKind::cuda, index}, stream, args, rets, attributes);
}

template <Operation kOperation>
XLA_FFI_Error* cpu_handler(XLA_FFI_CallFrame* frame) {
  static auto* const handler =
      ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs().To(on_cpu<kOperation>).release();
  return handler->Call(frame);
}
template <Operation kOperation>
XLA_FFI_Error* cuda_handler(XLA_FFI_CallFrame* frame) {
  static auto* const handler = ffi::Ffi::Bind()
                                   .Ctx<ffi::PlatformStream<void*>>()
                                   .Ctx<ffi::DeviceOrdinal>()
                                   .RemainingArgs()
                                   .RemainingRets()
                                   .Attrs()
                                   .To(on_cuda<kOperation>)
                                   .release();
  return handler->Call(frame);
}

}  // namespace
}  // namespace keel::python

NB_MODULE(_jax, m) {
  using namespace keel::python;
  m.doc() = "The compiled part of keel.jax.";
  const nb::object capsule = nb::module_::import_("keel._core").attr("calls");
  calls = static_cast<const Calls*>(PyCapsule_GetPointer(capsule.ptr(), kCallsName));
  if (calls == nullptr) throw nb::python_error();
  m.attr("api_version") = nb::make_tuple(XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR);
  nb::list targets;  // (name, platform, handler)
  const auto add = [&](const char* name, const char* platform, XLA_FFI_Handler* handler) {
    targets.append(nb::make_tuple(name, platform, nb::capsule(reinterpret_cast<void*>(handler))));
  };
  add("keel_attention", "cpu", cpu_handler<Operation::forward>);
  add("keel_attention_backward", "cpu", cpu_handler<Operation::backward>);
  add("keel_attention", "CUDA", cuda_handler<Operation::forward>);
  add("keel_attention_backward", "CUDA", cuda_handler<Operation::backward>);
  m.attr("targets") = targets;
}
