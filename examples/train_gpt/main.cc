// Trains a character GPT on a text file, on the CPU.
// train_gpt --help lists the options.
//
// Ctrl-C saves and stops; the same command continues from there, with the same result as one uninterrupted run. After
// a crash it continues from the last checkpoint.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <system_error>

#include "run.h"

namespace {

volatile std::sig_atomic_t interrupted = 0;

struct Arguments {
  std::string text, checkpoint, curve;
  std::int64_t save_every = 100;
  RunSettings run;
};

void print_help() {
  const RunSettings run;
  const Arguments all;
  const auto line = [](const char* flag, const char* meaning, double standard) {
    std::printf("  %-20s %s (%g)\n", flag, meaning, standard);
  };
  std::printf(
      "Usage: train_gpt TEXT [OPTIONS]\n\nTrains a character GPT on the file TEXT, on the CPU. Ctrl-C saves and stops; "
      "the same "
      "command\ncontinues from there, with the same result as one uninterrupted run.\n\n");
  line("--layers N", "blocks", static_cast<double>(run.layers));
  line("--heads N", "heads of attention per block", static_cast<double>(run.heads));
  line("--d-model N", "width, a multiple of the heads", static_cast<double>(run.d_model));
  line("--context N", "characters that the model sees", static_cast<double>(run.context));
  line("--batch N", "sequences per step", static_cast<double>(run.batch));
  line("--steps N", "steps of training", static_cast<double>(run.steps));
  line("--lr X", "learning rate", run.lr);
  line("--dropout X", "of weights and layers", run.dropout);
  line("--seed N", "of the random numbers", static_cast<double>(run.seed));
  line("--save-every N", "steps between two checkpoints", static_cast<double>(all.save_every));
  std::printf("  %-20s %s\n  %-20s %s\n", "--checkpoint FILE", "where the model is kept (TEXT.safetensors)",
              "--curve FILE", "gets the loss of each step, one per line");
}

template <class T>
T number(const std::string& name, const std::string& value) {
  std::size_t used = 0;
  T result{};
  try {
    if constexpr (std::is_integral_v<T>)
      result = static_cast<T>(std::stoll(value, &used));
    else
      result = std::stod(value, &used);
  } catch (const std::exception&) {
  }
  if (used == 0 || used != value.size() || result < 0 || !std::isfinite(static_cast<double>(result))) {
    throw std::invalid_argument(name + ": expected a number of at least 0, got '" + value + "'");
  }
  return result;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  const auto into = [](auto& target) {
    return [&target](const std::string& name, const std::string& value) {
      target = number<std::remove_reference_t<decltype(target)>>(name, value);
    };
  };
  const auto text_into = [](std::string& target) {
    return [&target](const std::string&, const std::string& value) { target = value; };
  };
  const std::map<std::string, std::function<void(const std::string&, const std::string&)>> flags = {
      {"--layers", into(a.run.layers)},   {"--heads", into(a.run.heads)},
      {"--d-model", into(a.run.d_model)}, {"--context", into(a.run.context)},
      {"--batch", into(a.run.batch)},     {"--steps", into(a.run.steps)},
      {"--lr", into(a.run.lr)},           {"--dropout", into(a.run.dropout)},
      {"--seed", into(a.run.seed)},       {"--checkpoint", text_into(a.checkpoint)},
      {"--curve", text_into(a.curve)},    {"--save-every", into(a.save_every)}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (!word.starts_with("--")) {
      if (!a.text.empty()) throw std::invalid_argument("expected one text file, got " + a.text + " and " + word);
      a.text = word;
      continue;
    }
    const auto flag = flags.find(word);
    if (flag == flags.end()) throw std::invalid_argument("unknown option " + word);
    if (++i == argc) throw std::invalid_argument(word + ": expected a value, got none");
    flag->second(word, argv[i]);
  }
  if (a.text.empty()) throw std::invalid_argument("expected a text file, got none (see train_gpt --help)");
  if (a.run.batch < 1) throw std::invalid_argument("--batch: expected at least 1, got 0");
  if (a.save_every < 1) throw std::invalid_argument("--save-every: expected at least 1, got 0");
  if (a.checkpoint.empty()) a.checkpoint = a.text + ".safetensors";
  return a;
}

// Raises if a file at `path` could not be written: after hours of training it would be too late.
void check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(path).parent_path();
  const auto refuse = [&](const std::string& expected, const std::string& got) {
    throw std::runtime_error("--checkpoint: " + path + ": expected " + expected + ", got \"" + got + "\"");
  };
  const auto reason = [] { return std::generic_category().message(errno); };
  if (fs::is_directory(path)) refuse("a file to write", "a folder");
  if (fs::exists(path) && ::access(path.c_str(), W_OK) != 0) refuse("a file to write", reason());
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse("a folder to write in", reason());
}

// Progress of a run, on one line of a terminal; silent elsewhere.
class Progress {
 public:
  Progress(std::int64_t first, std::int64_t total) : first_(first), total_(total) {}
  ~Progress() { clear(); }

  void show(std::int64_t step, double loss, std::int64_t tokens) {
    const Clock::time_point now = Clock::now();
    if (!shown_ || now - drawn_ < std::chrono::milliseconds(200)) return;
    drawn_ = now;
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    const double speed = static_cast<double>(step - first_) / elapsed;  // steps per second
    const auto left = static_cast<long>(static_cast<double>(total_ - step) / speed + 0.5);
    constexpr std::int64_t kWidth = 24;
    const auto done = static_cast<int>(kWidth * step / total_);
    const std::string bar =
        std::string(static_cast<std::size_t>(done), '#') + std::string(static_cast<std::size_t>(kWidth - done), '.');
    std::fprintf(stderr, "\r\x1b[K[%s] step %ld/%ld  loss %.3f  %.0f tokens/s  %ld:%02ld left", bar.c_str(),
                 static_cast<long>(step), static_cast<long>(total_), loss, speed * static_cast<double>(tokens),
                 left / 60, left % 60);
    std::fflush(stderr);
    line_ = true;
  }
  void clear() {
    if (line_) std::fprintf(stderr, "\r\x1b[K");
    line_ = false;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const bool shown_ = ::isatty(STDERR_FILENO) != 0;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  std::int64_t first_, total_;
  bool line_ = false;
};

int train(const Arguments& a) {
  check_writable(a.checkpoint);
  const Text text(a.text);
  Run run(a.run, text);
  if (std::filesystem::exists(a.checkpoint)) {
    run.load(a.checkpoint);
    std::printf("resumed at step %ld from %s\n", static_cast<long>(run.step()), a.checkpoint.c_str());
  }
  // Each step's loss, one per line, for comparing runs.
  std::FILE* const curve = a.curve.empty() ? nullptr : std::fopen(a.curve.c_str(), "a");
  if (!a.curve.empty() && curve == nullptr) throw std::runtime_error(a.curve + ": expected a file to write, got none");
  if (curve != nullptr) std::setvbuf(curve, nullptr, _IOLBF, BUFSIZ);  // survives a crash

  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  {
    Progress progress(run.step(), a.run.steps);
    while (run.step() < a.run.steps && interrupted == 0) {
      const double loss = run.train_step();
      if (curve != nullptr) std::fprintf(curve, "%ld %.9g\n", static_cast<long>(run.step()), loss);
      if (run.step() % a.save_every == 0 && run.step() < a.run.steps) run.save(a.checkpoint);
      progress.show(run.step(), loss, run.tokens_per_step());
    }
  }
  if (curve != nullptr) std::fclose(curve);
  run.save(a.checkpoint);
  if (run.step() < a.run.steps) {
    std::printf("stopped at step %ld; the same command continues from %s\n", static_cast<long>(run.step()),
                a.checkpoint.c_str());
    return 130;
  }
  std::printf("held-out loss %.4f nats per character; a bigram model reaches %.4f\n", run.held_out_loss(),
              run.bigram_loss());
  for (std::uint64_t i = 0; i < 2; ++i)
    std::printf("--- sample %d\n%s\n", static_cast<int>(i + 1), printable(run.sample(300, 0.8, i)).c_str());
  return 0;
}

// The message may quote a file.
int fail(int status, const std::exception& error) {
  std::fprintf(stderr, "train_gpt: %s\n", printable(error.what()).c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word != "--help" && word != "-h") continue;
    print_help();
    return 0;
  }
  try {
    return train(parse(argc, argv));
  } catch (const Diverged& error) {
    return fail(1, error);
  } catch (const std::invalid_argument& error) {
    return fail(2, error);
  } catch (const std::exception& error) {
    return fail(3, error);
  }
}
