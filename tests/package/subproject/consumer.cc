// Attention in a project that does without exceptions and turns warnings into errors.
#include <keel/c_api.h>
#include <keel/keel.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  // Every row of v is the same, so every output is that row; NaN where the mask hides it must not show.
  constexpr std::int64_t kLength = 64, kSize = 16;
  std::vector<float> q(kLength * kSize, 0.5f), v(kLength * kSize, 2.0f), out(q.size());
  const auto tensor = [](auto& x) { return keel::view(x.data(), {1, 1, kLength, kSize}); };
  v.back() = std::nanf("");
  keel::attention(tensor(q), tensor(q), tensor(v), tensor(out), {.causal = keel::Causal::top_left});
  for (std::size_t i = 0; i + 1 < out.size(); ++i) {
    if (std::fabs(out[i] - 2.0f) < 1e-5f) continue;
    std::fprintf(stderr, "FAILED: out[%zu]: expected 2, got %f\n", i, static_cast<double>(out[i]));
    return 1;
  }
  std::printf("Keel %s\n", keel_version());
  return 0;
}
