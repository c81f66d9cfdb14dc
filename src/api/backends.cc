#include "api/backends.h"

#include "cpu/backend.h"

namespace keel {

Backends& backends() {
  // No lock: a child forked during the first call would find it held.
  static constinit Backends all;
  if (all.of(DeviceKind::cpu) == nullptr) all.set(DeviceKind::cpu, &cpu::backend());
  return all;
}

}  // namespace keel
