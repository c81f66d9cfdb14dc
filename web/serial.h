// Included before every source: what libc++ leaves out where there are no threads, and the kernels' waiting loops name.
#pragma once

#ifdef __cplusplus
namespace std::this_thread {
inline void yield() noexcept {}
}  // namespace std::this_thread
#endif
