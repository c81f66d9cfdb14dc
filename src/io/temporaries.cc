#include "io/temporaries.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

namespace keel::io {
namespace {

enum class State { free, taken, noted };  // taken: its name is being written

struct Place {
  std::atomic<State> state{State::free};
  std::array<char, PATH_MAX> path{};
};

std::array<Place, 16> places;
std::atomic<bool> removed = false;

}  // namespace

int note_temporary(const char* path) noexcept {
  const std::size_t length = std::strlen(path);
  for (std::size_t i = 0; length < PATH_MAX && i < places.size(); ++i) {
    State free = State::free;
    if (!places[i].state.compare_exchange_strong(free, State::taken)) continue;
    std::memcpy(places[i].path.data(), path, length + 1);
    places[i].state = State::noted;
    return static_cast<int>(i);
  }
  return kNoPlace;
}

void forget_temporary(int place) noexcept {
  if (place != kNoPlace) places[static_cast<std::size_t>(place)].state = State::free;
}

void remove_temporaries() noexcept {
  const int error = errno;
  removed = true;
  for (Place& place : places) {
    if (place.state == State::noted) ::unlink(place.path.data());
  }
  errno = error;
}

bool temporaries_removed() noexcept { return removed; }

}  // namespace keel::io
