// One runtime for both libraries: a team that was given to libkeel does the work of libkeel_nn too.
#include <keel/keel.h>
#include <keel/nn/nn.h>

#include <cstdio>
#include <vector>

namespace {

constexpr int kMembers = 2;
int calls = 0;

// A team as an OpenMP library has one, though of the calling thread alone: who comes takes all there is.
void run(void (*work)(void*), void* data, unsigned, unsigned) {
  ++calls;
  work(data);
}

bool failed = false;

// Whether `what` was done by the team, as it must be after use_team and must not be before.
template <class Work>
void expect(bool by_team, const char* what, const Work& work) {
  calls = 0;
  work();
  if ((calls > 0) == by_team) return;
  std::fprintf(stderr, "FAILED: %s: expected the team to be called: %s, got %d calls\n", what, by_team ? "yes" : "no",
               calls);
  failed = true;
}

}  // namespace

int main() {
  constexpr std::int64_t kHeads = 4, kLength = 256, kSize = 64;
  std::vector<float> x(kHeads * kLength * kSize, 0.5f), out(x.size());
  const auto attend = [&] {
    const auto tensor = [](auto& data) { return keel::view(data.data(), {1, kHeads, kLength, kSize}); };
    keel::attention(tensor(x), tensor(x), tensor(x), tensor(out), {.threads = kMembers});
  };
  keel::nn::set_threads(kMembers);
  const keel::nn::Tensor matrix = keel::nn::Tensor::zeros({512, 512});
  const auto multiply = [&] { keel::nn::matmul(matrix, matrix); };
  const auto add = [&] { matrix + matrix; };

  for (const bool by_team : {false, true}) {
    keel::use_team(by_team ? keel::Team{run, [] { return kMembers; }} : keel::Team{});
    expect(by_team, "keel::attention", attend);
    expect(by_team, "keel::nn::matmul", multiply);
    expect(by_team, "keel::nn's sum of two tensors", add);
  }
  return failed ? 1 : 0;
}
