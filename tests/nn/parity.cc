// nn_parity IN OUT: runs the module that IN (.safetensors, written by parity.py) describes with the weights and inputs
// in it, and writes to OUT its output, loss, gradients, and the losses and parameters of ten steps of Adam.
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "keel/nn/nn.h"

namespace keel::nn {
namespace {

struct Case {
  std::unique_ptr<Module> module;
  std::function<Tensor()> output;
  std::function<Tensor(const Tensor&)> loss;
};

std::int64_t number(const Checkpoint& in, const std::string& key) { return std::stoll(in.text(key)); }

AttentionOptions options_of(const Checkpoint& in, const std::map<std::string, Tensor>& inputs) {
  AttentionOptions options{.causal = in.text("causal") == "yes" ? Causal::top_left : Causal::none};
  if (inputs.contains("k_lengths")) {
    const auto lengths = inputs.at("k_lengths").data<std::int64_t>();
    options.k_lengths.assign(lengths.begin(), lengths.end());
  }
  return options;
}

Case make_case(const Checkpoint& in, const std::map<std::string, Tensor>& inputs) {
  const std::string kind = in.text("module");
  Random random(0);
  const auto weighted = [&inputs](const Tensor& y) { return sum(y * inputs.at("seed")); };
  if (kind == "mha") {
    auto mha = std::make_unique<MultiHeadAttention>(number(in, "d_model"), number(in, "heads"), random);
    const auto* m = mha.get();
    const AttentionOptions options = options_of(in, inputs);
    const Tensor x = inputs.at("x"), y = inputs.contains("y") ? inputs.at("y") : x;
    return {std::move(mha), [=] { return (*m)(x, y, options); }, weighted};
  }
  if (kind == "additive") {
    auto layer = std::make_unique<Attention>(
        std::make_unique<AdditiveScore>(number(in, "d_q"), number(in, "d_k"), number(in, "d_a"), random));
    const auto* m = layer.get();
    const AttentionOptions options = options_of(in, inputs);
    return {std::move(layer), [=, &inputs] { return (*m)(inputs.at("x"), inputs.at("y"), inputs.at("v"), options); },
            weighted};
  }
  const RecurrentSettings recurrent{.bidirectional = in.metadata.contains("bidirectional")};
  if (kind == "gru") {
    auto gru = std::make_unique<GRU>(number(in, "d_in"), number(in, "d_hidden"), random, recurrent);
    const auto* m = gru.get();
    return {std::move(gru), [=, &inputs] { return (*m)(inputs.at("x"), inputs.at("h")).output; }, weighted};
  }
  if (kind == "lstm") {
    auto lstm = std::make_unique<LSTM>(number(in, "d_in"), number(in, "d_hidden"), random, recurrent);
    const auto* m = lstm.get();
    return {std::move(lstm), [=, &inputs] { return (*m)(inputs.at("x"), inputs.at("h"), inputs.at("c")).output; },
            weighted};
  }
  auto gpt = std::make_unique<GPT>(GPTSettings{.vocabulary = number(in, "vocabulary"),
                                               .context = number(in, "context"),
                                               .d_model = number(in, "d_model"),
                                               .heads = number(in, "heads"),
                                               .layers = number(in, "layers")});
  const auto* m = gpt.get();
  return {std::move(gpt), [=, &inputs] { return (*m)(inputs.at("ids")); },
          [&inputs](const Tensor& logits) { return cross_entropy(logits, inputs.at("labels")); }};
}

void run(const std::string& from, const std::string& to) {
  const Checkpoint in = load_checkpoint(from);
  std::map<std::string, Tensor> inputs;
  for (auto& [name, tensor] : in.under("input.")) {
    inputs[name] = tensor;
    if (is_floating(tensor.dtype()) && name != "seed") inputs[name].require_grad();
  }
  const Case c = make_case(in, inputs);
  c.module->load(in.under("model."));

  Checkpoint out;
  const Tensor output = c.output();
  const Tensor loss = c.loss(output);
  loss.backward();
  out.tensors = {{"output", output.clone()}, {"loss", loss.clone()}};
  for (const auto& [name, w] : c.module->parameters()) out.tensors.emplace_back("grad." + name, w.grad());
  for (const auto& [name, x] : inputs) {
    if (x.requires_grad()) out.tensors.emplace_back("grad.input." + name, x.grad());
  }
  Adam adam(c.module->parameters(), {.lr = 1e-3});
  std::vector<float> losses;
  for (int step = 0; step < 10; ++step) {
    adam.zero_grad();
    const Tensor now = c.loss(c.output());
    now.backward();
    adam.step();
    losses.push_back(static_cast<float>(now.item()));
  }
  out.tensors.emplace_back("losses", Tensor::of({10}, losses));
  append(out.tensors, "after.", c.module->parameters());
  save_checkpoint(to, out);
}

}  // namespace
}  // namespace keel::nn

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    keel::nn::run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nn_parity: %s\n", error.what());
    return 1;
  }
}
