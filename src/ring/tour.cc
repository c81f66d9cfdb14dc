#include "ring/tour.h"

#include <algorithm>

#include "core/slice.h"

namespace keel::ring {
namespace {

// Steps ahead of its own for which a rank offers its block. More would let ranks drift further apart without waiting
// for each other, but a rank that fails cannot say so in what it has offered.
constexpr int kAhead = 4;

}  // namespace

Tour::Tour(Link& link, const Geometry& geometry, const BlockShape& sent, std::optional<BlockShape> returned,
           int threads)
    : link_(link), geometry_(geometry), sent_(sent), returned_(returned), threads_(threads) {
  std::int64_t in = 0, out = 0, back = 0, home = 0, whole = 0;
  for (int s = 1; s < link.size(); ++s) {
    const Step each = step(s);
    in = std::max(in, sent_.bytes(each.in));
    (from_front(each.out) ? whole : out) = std::max(from_front(each.out) ? whole : out, sent_.bytes(each.out));
    if (!returned_) continue;
    back = std::max(back, returned_->bytes(each.in));
    home = std::max(home, returned_->bytes(each.out));
  }
  if (returned_) back = std::max(back, returned_->bytes(geometry.needs(link.rank(), link.rank())));
  lent_.resize(static_cast<std::size_t>(link.size()));
  if (whole > 0) {
    whole_ = Message(sent_.bytes(geometry.keys(link.rank()).parts));
    failure_ = Message(whole_.capacity(), true);  // never written to: address space, no memory
  }
  for (std::size_t x = 0; x < 2; ++x) {
    in_[x] = Message(in);
    out_[x] = Message(out);
    back_[x] = Message(back);
  }
  for (Message& message : home_) message = Message(home);
}

// Whether rows are the beginning of the packed block: all of the first stretch, and all or nothing of the second.
bool Tour::from_front(const Needs& rows) const {
  const Shard all = geometry_.keys(link_.rank());
  return rows[0].size() == all.parts[0].size() && rows[0].size() > 0 &&
         (rows[1].size() == 0 || rows[1].size() == all.parts[1].size());
}

Tour::Step Tour::step(int s) const {
  const int rank = link_.rank(), size = link_.size();
  const int from = (rank + size - s) % size, to = (rank + s) % size;
  return {from, to, geometry_.needs(rank, from), geometry_.needs(to, rank)};
}

// A rank that has failed says so in another message.
void Tour::offer(int s) {
  const Step its = step(s);
  if (!from_front(its.out)) return;
  const std::int64_t bytes = sent_.bytes(its.out);
  Message& lent = lent_[static_cast<std::size_t>(s)] = link_.failed() ? failure_.shared() : whole_.shared();
  link_.send(its.to, kBlocks, lent, bytes);
}

void Tour::begin(int s, const Block& own) {
  if (s >= link_.size()) return;
  const auto parity = static_cast<std::size_t>(s % 2);
  const Step now = step(s);
  link_.receive(now.from, kBlocks, in_[parity], sent_.bytes(now.in));
  while (offered_ < std::min(s + kAhead, link_.size() - 1)) offer(++offered_);
  link_.wait(out_[parity]);
  if (!from_front(now.out)) {
    link_.attempt([&] { pack(sent_, own, now.out, out_[parity].data(), threads_); });
    link_.send(now.to, kBlocks, out_[parity], sent_.bytes(now.out));
  }
  if (returned_) link_.receive(now.to, kGradients, home_[static_cast<std::size_t>(s % 3)], returned_->bytes(now.out));
}

void Tour::take_back(int s, const Receive& receive) {
  if (!returned_ || s < 1) return;
  Message& home = home_[static_cast<std::size_t>(s % 3)];
  link_.wait(home);
  link_.attempt([&] { receive(step(s).out, home.data()); });
}

void Tour::run(const Block& own, const Compute& compute, const Receive& receive) {
  if (whole_.capacity() > 0) link_.attempt([&] { pack(sent_, own, own.rows, whole_.data(), threads_); });
  begin(1, own);
  const Needs mine = geometry_.needs(link_.rank(), link_.rank());
  link_.attempt([&] {
    const auto part = [&](const TensorView& x, std::size_t i) {
      return slice(x, 2, mine[i].begin - own.rows[i].begin, mine[i].end - own.rows[i].begin, own.rows[i].size());
    };
    Block seen = {mine, {}, {}};
    for (std::size_t i = 0; i < 2; ++i) {
      if (mine[i].size() > 0) seen.k[i] = part(own.k[i], i), seen.v[i] = part(own.v[i], i);
    }
    compute(link_.rank(), seen, back_[0].data());
    if (returned_) receive(mine, back_[0].data());
  });
  for (int s = 1; s < link_.size(); ++s) {
    const auto parity = static_cast<std::size_t>(s % 2);
    const Step now = step(s);
    link_.wait(in_[parity]);
    take_back(s - 2, receive);  // before its memory serves step s + 1
    begin(s + 1, own);
    link_.wait(back_[parity]);
    if (sent_.bytes(now.in) == 0) continue;
    link_.attempt([&] { compute(now.from, sent_.block(now.in, in_[parity].data()), back_[parity].data()); });
    if (returned_) link_.send(now.from, kGradients, back_[parity], returned_->bytes(now.in));
  }
  take_back(link_.size() - 2, receive);
  take_back(link_.size() - 1, receive);
  for (Message& lent : lent_) link_.wait(lent);
  for (std::size_t x = 0; x < 2; ++x) {
    link_.wait(out_[x]);
    link_.wait(back_[x]);
  }
  offered_ = 0;
}

}  // namespace keel::ring
