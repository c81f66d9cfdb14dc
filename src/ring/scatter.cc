#include <optional>
#include <vector>

#include "core/message.h"
#include "core/slice.h"
#include "ring/copy.h"
#include "ring/link.h"

namespace keel::ring {
namespace {

std::int64_t bytes_of(const std::array<std::int64_t, 4>& shape, DType dtype) {
  return shape[0] * shape[1] * shape[2] * shape[3] * size_of(dtype);
}

// All ranks tell their shapes, and find the same fault in them.
void check(Link& link, const char* name, const TensorView& whole, const TensorView& mine, Layout layout, int root) {
  const auto refuse = [&](const auto&... parts) {
    throw Error(ErrorCode::invalid_argument, concat("[", name, "] ", parts...));
  };
  const bool here = link.rank() == root;
  std::vector<double> told = {static_cast<double>(root), static_cast<double>(layout)};
  for (const TensorView& x : {mine, here ? whole : mine}) {
    told.push_back(static_cast<double>(x.dtype));
    for (const std::int64_t n : x.shape) told.push_back(static_cast<double>(n));
  }
  const std::vector<std::vector<double>> all = link.share(told);
  if (root < 0 || root >= link.size()) refuse("root: expected a rank from 0 to ", link.size() - 1, ", got ", root);
  std::array<std::int64_t, 4> shape;
  for (std::size_t i = 0; i < 4; ++i) shape[i] = static_cast<std::int64_t>(all[static_cast<std::size_t>(root)][8 + i]);
  for (int rank = 0; rank < link.size(); ++rank) {
    const std::vector<double>& it = all[static_cast<std::size_t>(rank)];
    if (it[0] != all[0][0]) refuse("root: expected ", all[0][0], " as on rank 0, got ", it[0], " on rank ", rank);
    if (it[1] != all[0][1]) refuse("layout: expected that of rank 0, got another on rank ", rank);
    if (it[2] != all[static_cast<std::size_t>(root)][7]) {
      refuse("mine: expected the dtype of root's whole, got another on rank ", rank);
    }
    std::array<std::int64_t, 4> got, expected = shape;
    for (std::size_t i = 0; i < 4; ++i) got[i] = static_cast<std::int64_t>(it[3 + i]);
    expected[2] = shard(shape[2], link.size(), rank, layout).size();
    if (got == expected) continue;
    refuse("mine: expected shape ", text_of(expected), " of a whole ", text_of(shape), " on rank ", rank, ", got ",
           text_of(got));
  }
}

// Calls work(part of whole, part of packed) for the stretches of a rank.
template <class Pointer, class Work>
void for_parts(const BasicView<4, Pointer>& whole, const Shard& rows, std::byte* packed, Work work) {
  std::array<std::int64_t, 4> shape = whole.shape;
  shape[2] = rows.size();
  const MutableTensorView all = {packed, whole.dtype, shape, contiguous_strides(shape)};
  std::int64_t first = 0;
  for (const Rows& part : rows.parts) {
    work(slice(whole, 2, part.begin, part.end, whole.shape[2]), slice(all, 2, first, first + part.size(), rows.size()));
    first += part.size();
  }
}

// The rows of every rank between the whole and messages.
template <class Pointer>
class Parts {
 public:
  Parts(Link& link, const BasicView<4, Pointer>& whole, Layout layout) {
    for (int rank = 0; rank < link.size(); ++rank) {
      shards.push_back(shard(whole.shape[2], link.size(), rank, layout));
      std::array<std::int64_t, 4> shape = whole.shape;
      shape[2] = shards.back().size();
      bytes.push_back(bytes_of(shape, whole.dtype));
      messages.emplace_back(bytes.back());
    }
  }
  std::vector<Shard> shards;
  std::vector<std::int64_t> bytes;
  std::vector<Message> messages;
};

MutableTensorView packed_view(const std::array<std::int64_t, 4>& shape, DType dtype, std::byte* memory) {
  return {memory, dtype, shape, contiguous_strides(shape)};
}

}  // namespace

void scatter(Transport& transport, const TensorView& whole, const MutableTensorView& mine, Layout layout, int root) {
  Link link(transport);
  const std::int64_t bytes = bytes_of(mine.shape, mine.dtype);
  Message in;
  std::optional<Parts<const void*>> parts;
  check(link, "scatter", whole, mine, layout, root);
  link.attempt([&] {
    in = Message(bytes);
    if (link.rank() == root) parts.emplace(link, whole, layout);
  });
  link.share({});
  if (link.rank() != root) {
    link.receive(root, kBlocks, in, bytes);
    link.wait(in);
  } else {
    for (int rank = 0; rank < link.size(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      std::byte* const to = rank == root ? in.data() : parts->messages[at].data();
      link.attempt([&] {
        for_parts(whole, parts->shards[at], to,
                  [](const TensorView& from, const MutableTensorView& part) { copy(from, part, 0); });
      });
      if (rank != root) link.send(rank, kBlocks, parts->messages[at], parts->bytes[at]);
    }
    for (Message& message : parts->messages) link.wait(message);
  }
  link.attempt([&] { copy(packed_view(mine.shape, mine.dtype, in.data()), mine, 0); });
  link.share({});
}

void gather(Transport& transport, const TensorView& mine, const MutableTensorView& whole, Layout layout, int root) {
  Link link(transport);
  const std::int64_t bytes = bytes_of(mine.shape, mine.dtype);
  Message out;
  std::optional<Parts<void*>> parts;
  check(link, "gather", whole, mine, layout, root);
  link.attempt([&] {
    out = Message(bytes);
    if (link.rank() == root) parts.emplace(link, whole, layout);
  });
  link.share({});
  link.attempt([&] { copy(mine, packed_view(mine.shape, mine.dtype, out.data()), 0); });
  if (link.rank() != root) {
    link.send(root, kBlocks, out, bytes);
    link.wait(out);
  } else {
    for (int rank = 0; rank < link.size(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (rank != root) link.receive(rank, kBlocks, parts->messages[at], parts->bytes[at]);
    }
    for (int rank = 0; rank < link.size(); ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      link.wait(parts->messages[at]);
      std::byte* const from = rank == root ? out.data() : parts->messages[at].data();
      link.attempt([&] {
        for_parts(whole, parts->shards[at], from,
                  [](const MutableTensorView& part, const MutableTensorView& packed) { copy(packed, part, 0); });
      });
    }
  }
  link.share({});
}

}  // namespace keel::ring
