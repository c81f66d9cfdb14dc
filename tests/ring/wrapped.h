#pragma once

#include "keel/ring.h"

namespace keel::ring {

// A transport around another; tests change what they want to.
class Wrapped : public Transport {
 public:
  explicit Wrapped(Transport& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Request isend(int to, int tag, const void* data, std::int64_t bytes) override {
    return inner_.isend(to, tag, data, bytes);
  }
  Request irecv(int from, int tag, void* data, std::int64_t bytes) override {
    return inner_.irecv(from, tag, data, bytes);
  }
  void wait(Request request) override { inner_.wait(request); }
  void progress() override { inner_.progress(); }

 private:
  Transport& inner_;
};

}  // namespace keel::ring
