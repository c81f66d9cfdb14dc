// keel lab break --blind on a pseudo-terminal, as a learner drives it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "io/file.h"
#include "program.h"

namespace keel::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// The program on a terminal of its own.
class Terminal {
 public:
  Terminal(const TemporaryFolder& folder, std::vector<std::string> command) {
    command.insert(command.begin(), KEEL_PROGRAM);
    std::vector<char*> arguments;
    for (std::string& argument : command) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    const winsize size{.ws_row = 50, .ws_col = 120, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    ::setenv("TERM", "xterm", 1);
    if (::chdir(folder.path().c_str()) == 0) ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ~Terminal() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(terminal_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // What it shows up to and with `text`, from where the last one ended; all that came if `text` does not come.
  std::string until(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (shown_.find(text, at_) == std::string::npos) {
      pollfd ready{.fd = terminal_, .events = POLLIN, .revents = 0};
      if (std::chrono::steady_clock::now() > end || ::poll(&ready, 1, 1000) < 0) break;
      char bytes[4096];
      const ssize_t count = ready.revents == 0 ? 0 : ::read(terminal_, bytes, sizeof(bytes));
      if (count < 0 || (ready.revents != 0 && count == 0)) break;  // it ended
      shown_.append(bytes, static_cast<std::size_t>(count));
    }
    const std::size_t found = shown_.find(text, at_);
    const std::size_t to = found == std::string::npos ? shown_.size() : found + text.size();
    const std::string part = shown_.substr(at_, to - at_);
    at_ = to;
    return part;
  }
  std::string rest() { return until("\x01 never shown"); }

  void type(const std::string& line) {
    EXPECT_EQ(::write(terminal_, (line + "\n").c_str(), line.size() + 1), ssize_t(line.size() + 1));
  }

  int status() {
    int status = -1;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t child_ = -1;
  int terminal_ = -1;
  std::string shown_;
  std::size_t at_ = 0;
};

std::string contents(const std::string& path) {
  const io::Buffer bytes = io::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Seed 3 is the mask that starts in the wrong corner.
const std::vector<std::string> kCausal = {"lab", "break", "--blind", "--seed", "3"};
constexpr const char* kPrompt = "give up: ";
constexpr const char* kLine = "tril()";  // of the diff

TEST(Blind, AWrongGuessAHintAndARightGuessLeadToTheLineTheFixAndARunWithIt) {
  const TemporaryFolder folder;
  Terminal learner(folder, kCausal);
  const std::string symptoms = learner.until(kPrompt);
  EXPECT_THAT(symptoms, HasSubstr("the keys that the last token sees"));
  EXPECT_THAT(symptoms, HasSubstr("│██"));  // rows of weights
  EXPECT_THAT(symptoms, HasSubstr("4  the causal mask starts in the wrong corner"));
  for (const char* spoiler : {kLine, "causal-off-by-alignment", "Hint", "fixed"})
    EXPECT_THAT(symptoms, Not(HasSubstr(spoiler)));

  learner.type("5");
  const std::string wrong = learner.until(kPrompt);
  EXPECT_THAT(wrong, HasSubstr("No, that is not it."));
  EXPECT_THAT(wrong, Not(HasSubstr(kLine)));
  learner.type("h");
  EXPECT_THAT(learner.until(kPrompt), HasSubstr("Hint 1 of 3: The mask has four rows"));
  learner.type("nonsense");  // asks again
  EXPECT_THAT(learner.until(kPrompt), Not(HasSubstr("No, that")));

  learner.type("4");
  const std::string end = learner.rest();
  EXPECT_THAT(end, HasSubstr("Yes: the causal mask starts in the wrong corner, with 2 guesses and 1 hint."));
  EXPECT_THAT(end, HasSubstr("- mask = ones(n_q, n_k).tril(diagonal=n_k - n_q)\r\n  + mask = ones(n_q, n_k).tril()"));
  EXPECT_THAT(end, HasSubstr("Align the mask to the bottom right"));
  EXPECT_THAT(end, testing::ContainsRegex("broken 4 +fixed 16"));
  EXPECT_THAT(end, testing::ContainsRegex("broken +fixed\r\n +┌"));  // side by side
  EXPECT_EQ(learner.status(), 0);
  EXPECT_THAT(contents(folder / "lab-report/notebook.tsv"),
              testing::MatchesRegex(
                  "date\tbreak\tquestion\tsaid\twas\n"
                  "[0-9-]+\tcausal-off-by-alignment\tguess\tsoftmax-over-queries\tcausal-off-by-alignment\n"
                  "[0-9-]+\tcausal-off-by-alignment\tguess\tcausal-off-by-alignment\tcausal-off-by-alignment\n"));

  // It comes back next time.
  Terminal again(folder, kCausal);
  EXPECT_THAT(again.until(kPrompt), HasSubstr("Your notebook so far: 1 found, 1 wrong guess."));
  again.type("");
  const std::string given_up = again.rest();
  EXPECT_THAT(given_up, HasSubstr("It was number 4"));
  EXPECT_THAT(given_up, testing::ContainsRegex("On 2[0-9-]+ you found it."));
  EXPECT_EQ(again.status(), 0);
}

TEST(OnATerminal, TheReportIsALinkAndProgressHasAnEstimateFromTheStart) {
  const TemporaryFolder folder;
  Terminal terminal(folder, {"lab", "variance", "--no-plots"});
  const std::string shown = terminal.rest();
  EXPECT_THAT(shown, testing::ContainsRegex(" %  variance  about [0-9]+:[0-9][0-9]"));
  EXPECT_THAT(shown, testing::ContainsRegex(" %  variance  [0-9]+:[0-9][0-9] left"));
  const std::string address = "file://" + folder.path() + "/lab-report/index.html";
  EXPECT_THAT(shown, HasSubstr("\x1b]8;;" + address + "\x1b\\lab-report/index.html\x1b]8;;\x1b\\"));
  EXPECT_EQ(terminal.status(), 0);
}

TEST(Blind, WithoutASeedOffersWhatWasNotFoundYet) {
  const TemporaryFolder folder;
  std::string notebook = "date\tbreak\tquestion\tsaid\twas\n";
  for (const char* name : {"no-scale", "sqrt-d-model", "mask-before-scale-in-f16", "softmax-over-queries"}) {
    notebook += std::string("2026-01-02\t") + name + "\tguess\t" + name + "\t" + name + "\n";
  }
  io::write_file(folder / "mine.tsv", notebook);
  const Result result = shell(folder, "keel lab break --blind --notebook mine.tsv </dev/null");
  EXPECT_THAT(result.out, HasSubstr("It was number 4"));
}

TEST(Blind, PredictionsAreKeptAndComeBackWithWhatHappened) {
  const TemporaryFolder folder;
  const std::string command = "printf 'less\nmore\n' | keel lab break causal-off-by-alignment --notebook n/mine.tsv";
  EXPECT_THAT(shell(folder, command).out, HasSubstr("Your predictions are in n/mine.tsv"));
  const std::string second = shell(folder, command).out;
  EXPECT_THAT(second, testing::ContainsRegex("On 2[0-9-]+ you predicted, and this happened:"));
  EXPECT_THAT(second, testing::ContainsRegex("seen-last +less +right"));
  EXPECT_THAT(second, testing::ContainsRegex("seen-first +more +wrong, it was less"));
}

TEST(Blind, WrongArgumentsEndBeforeAnyWork) {
  const TemporaryFolder folder;
  io::write_file(folder / "bad.tsv", "date\tbreak\tquestion\tsaid\twas\n2026\tonly\n");
  const std::vector<std::pair<std::vector<std::string>, std::pair<int, std::string>>> cases = {
      {{"--blind", "no-scale"}, {2, "--blind: expected no name with it, got 'no-scale'"}},
      {{"--blind", "--json"}, {2, "--blind: expected no --json with it"}},
      {{"--blind", "--notebook", "bad.tsv"}, {3, "bad.tsv, line 2: expected 5 columns"}},
      {{"no-scale", "--notebook", "bad.tsv"}, {3, "bad.tsv, line 2: expected 5 columns"}},
  };
  for (const auto& [arguments, expected] : cases) {
    std::vector<std::string> all = {"lab", "break"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Result result = keel(folder, all);
    EXPECT_EQ(result.status, expected.first);
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(is_one_message(result.err));
    EXPECT_THAT(result.err, HasSubstr(expected.second));
  }
}

}  // namespace
}  // namespace keel::test
