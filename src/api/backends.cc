#include "api/backends.h"

#include "cpu/backend.h"

namespace keel {

Backends& backends() {
  static Backends all{{DeviceKind::cpu, &cpu::backend()}};
  return all;
}

}  // namespace keel
