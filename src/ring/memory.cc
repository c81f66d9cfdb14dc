#include "ring/memory.h"

#include <algorithm>
#include <vector>

namespace keel::ring {
namespace {

struct Piece {
  std::unique_ptr<std::byte[]> memory;
  std::int64_t bytes = 0;
};

constexpr std::size_t kKept = 16;

// Those of the calling thread that nobody uses, the smallest first.
struct Shelf {
  std::vector<Piece> pieces;
  static thread_local bool open;  // not in a thread that is ending
  Shelf() { open = true; }
  ~Shelf() { open = false; }
};
thread_local bool Shelf::open = false;
thread_local Shelf shelf;

void give_back(Piece piece) {
  if (!Shelf::open) return;
  try {
    const auto larger = [&](const Piece& other) { return other.bytes >= piece.bytes; };
    shelf.pieces.insert(std::find_if(shelf.pieces.begin(), shelf.pieces.end(), larger), std::move(piece));
    if (shelf.pieces.size() > kKept) shelf.pieces.erase(shelf.pieces.begin());
  } catch (const std::bad_alloc&) {  // then it is freed
  }
}

}  // namespace

std::shared_ptr<std::byte[]> take_memory(std::int64_t bytes) {
  Piece piece;
  auto& pieces = shelf.pieces;
  const auto fits = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& x) { return x.bytes >= bytes; });
  if (fits != pieces.end() && fits->bytes / 2 <= bytes) {
    piece = std::move(*fits);
    pieces.erase(fits);
  } else {
    piece = {std::unique_ptr<std::byte[]>(new std::byte[static_cast<std::size_t>(bytes)]), bytes};
  }
  std::byte* const memory = piece.memory.release();
  const std::int64_t size = piece.bytes;
  return {memory, [size](std::byte* mine) { give_back({std::unique_ptr<std::byte[]>(mine), size}); }};
}

}  // namespace keel::ring
