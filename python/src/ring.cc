#include "ring.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "keel/ring.h"
#include "options.h"

namespace keel::python {
namespace {

// An object with rank, size, isend(to, tag, address, bytes), irecv(from, tag, address, bytes) and wait(request). Keel
// calls it from a thread without the GIL.
class PythonTransport final : public ring::Transport {
 public:
  explicit PythonTransport(nb::handle object)
      : object_(nb::borrow(object)),
        rank_(nb::cast<int>(object.attr("rank"))),
        size_(nb::cast<int>(object.attr("size"))) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Request isend(int to, int tag, const void* data, std::int64_t bytes) override {
    return call("isend", to, tag, reinterpret_cast<std::uintptr_t>(data), bytes);
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    return call("irecv", from, tag, reinterpret_cast<std::uintptr_t>(data), bytes);
  }
  void wait(Request request) override { call("wait", request); }

 private:
  template <class... Values>
  Request call(const char* method, Values... values) {
    const nb::gil_scoped_acquire held;
    try {
      const nb::object result = object_.attr(method)(values...);
      return result.is_none() ? 0 : nb::cast<Request>(result);
    } catch (const nb::python_error& error) {  // its objects must not outlive the GIL, and its traceback says nothing
      throw Error(ErrorCode::peer, nb::str(error.value()).c_str());
    }
  }

  nb::object object_;
  int rank_, size_;
};

// (n_q, n_k, layout, mode)
ring::Sharding sharding_of(const char* operation, const nb::tuple& given) {
  const Place layout_place{operation, "layout"}, mode_place{operation, "mode"};
  ring::Sharding sharding{.n_q = nb::cast<std::int64_t>(given[0]), .n_k = nb::cast<std::int64_t>(given[1])};
  const std::string layout = nb::cast<std::string>(given[2]), mode = nb::cast<std::string>(given[3]);
  if (layout != "zigzag" && layout != "contiguous") {
    layout_place.value_error("expected 'zigzag' or 'contiguous', got '" + layout + "'");
  }
  if (mode != "ring" && mode != "ordered" && mode != "decode") {
    mode_place.value_error("expected 'ring', 'ordered' or 'decode', got '" + mode + "'");
  }
  sharding.layout = layout == "zigzag" ? ring::Layout::zigzag : ring::Layout::contiguous;
  sharding.mode = mode == "ring" ? ring::Mode::ring : mode == "ordered" ? ring::Mode::ordered : ring::Mode::decode;
  return sharding;
}

// Reads a call's arguments. A wrong one is told to the other ranks, which would wait for this one otherwise.
template <class Read>
void read_arguments(PythonTransport& transport, Read read) {
  const auto tell = [&](const char* reason) {
    try {
      without_gil([&] { ring::fail(transport, reason); });
    } catch (const Error&) {  // what all ranks raise; this one has the exception itself
    }
  };
  try {
    read();
  } catch (const nb::python_error& error) {
    tell(nb::str(error.value()).c_str());
    throw;
  } catch (const std::exception& error) {
    tell(error.what());
    throw;
  }
}

void attention_call(nb::handle object, const nb::tuple& sharding, const nb::tuple& tensors, nb::dict options,
                    nb::dict outputs) {
  Arguments arguments("ring_attention");
  PythonTransport transport(object);
  ring::Sharding whole;
  ring::Tensors mine;
  Options given;
  Outputs report;
  read_arguments(transport, [&] {
    whole = sharding_of("ring_attention", sharding);
    mine = {.q = arguments.tensor("q", tensors[0]),
            .k = arguments.tensor("k", tensors[1]),
            .v = arguments.tensor("v", tensors[2]),
            .out = arguments.tensor("out", tensors[3], Access::write)};
    given = arguments.options(options);
    report = arguments.outputs(outputs);
  });
  without_gil([&] { ring::attention(transport, whole, mine, given, report); });
}

void backward_call(nb::handle object, const nb::tuple& sharding, nb::dict inputs, nb::dict options,
                   nb::dict gradients) {
  Arguments arguments("ring_attention_backward");
  PythonTransport transport(object);
  ring::Sharding whole;
  BackwardInputs mine;
  Options given;
  Gradients results;
  read_arguments(transport, [&] {
    whole = sharding_of("ring_attention_backward", sharding);
    whole.own_sums = nb::cast<bool>(sharding[4]);
    const auto tensor = [&](const char* name) { return arguments.tensor(name, inputs[name]); };
    mine = {.q = tensor("q"),
            .k = tensor("k"),
            .v = tensor("v"),
            .out = tensor("out"),
            .lse = arguments.view<3>("lse", inputs["lse"], Access::read, 1),
            .dout = tensor("dout"),
            .dlse = arguments.optional<3>("dlse", inputs["dlse"], Access::read, 1)};
    given = arguments.options(options);
    results = arguments.gradients(gradients);
  });
  without_gil([&] { ring::attention_backward(transport, whole, mine, results, given); });
}

std::vector<std::vector<double>> share_call(nb::handle object, const std::vector<double>& mine,
                                            const std::string& failure) {
  PythonTransport transport(object);
  std::vector<std::vector<double>> all;
  without_gil([&] { all = ring::share(transport, mine, failure); });
  return all;
}

std::vector<std::pair<std::int64_t, std::int64_t>> shard_call(std::int64_t n, int size, int rank,
                                                              const std::string& layout) {
  const ring::Layout kind = sharding_of("shard", nb::make_tuple(0, 0, layout, "ring")).layout;
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;
  for (const ring::Rows& rows : ring::shard(n, size, rank, kind).parts) parts.emplace_back(rows.begin, rows.end);
  return parts;
}

}  // namespace

void add_ring(nb::module_& m) {
  m.def("ring_attention", &attention_call, nb::arg("transport"), nb::arg("sharding"), nb::arg("tensors"),
        nb::arg("options"), nb::arg("outputs"), "Attention of this rank's queries over the keys of all ranks.");
  m.def("ring_attention_backward", &backward_call, nb::arg("transport"), nb::arg("sharding"), nb::arg("inputs"),
        nb::arg("options"), nb::arg("gradients"), "The gradients of this rank's rows.");
  m.def("ring_share", &share_call, nb::arg("transport"), nb::arg("mine"), nb::arg("failure") = "",
        "The numbers of all ranks; raises on all of them where one gives a failure.");
  m.def("shard", &shard_call, nb::arg("n"), nb::arg("size"), nb::arg("rank"), nb::arg("layout"),
        "Which of n rows a rank has: [begin, end) of two stretches.");
}

}  // namespace keel::python
