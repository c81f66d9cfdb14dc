#include "api/backends.h"

#include "cpu/backend.h"
#include "cuda/backend.h"

namespace keel {

Backends& backends() {
  // No lock: a child forked during the first call would find it held.
  static constinit Backends all;
  if (all.of(DeviceKind::cpu) == nullptr) all.set(DeviceKind::cpu, &cpu::backend());
  if (all.of(DeviceKind::cuda) == nullptr) all.set(DeviceKind::cuda, &cuda::backend());
  return all;
}

}  // namespace keel
