#pragma once

// The temporary files that this process is writing, where a signal handler can find them: a fixed table that needs
// neither memory nor a lock.
namespace keel::io {

inline constexpr int kNoPlace = -1;

// Registers a name; returns its place, or kNoPlace if the table is full or the name too long. Then the file is left
// behind if a signal ends the process.
int note_temporary(const char* path) noexcept;
void forget_temporary(int place) noexcept;

// Removes every registered file, and every one registered from now on: for a process that is about to end. May be
// called from a signal handler.
void remove_temporaries() noexcept;

// Whether that has been called.
bool temporaries_removed() noexcept;

}  // namespace keel::io
