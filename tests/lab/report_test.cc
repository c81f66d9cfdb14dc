// What a run leaves behind: JSON that can be read back, CSV, and a page that needs nothing but itself.
#include "lab/report/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "io/file.h"
#include "keel/error.h"
#include "lab/breaks/breaks.h"
#include "lab/folder.h"
#include "lab/report/picture.h"
#include "run.h"
#include "support/temporary_folder.h"

namespace keel::test {
namespace {

using namespace lab;
using testing::HasSubstr;
using testing::Not;

const std::string& page() {
  static const std::string html = report(everything(), ledger(everything()));
  return html;
}

std::string text_of(const std::string& path) {
  const io::Buffer bytes = io::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A small result with something of everything, and characters that HTML, JSON and CSV care about.
Record small() {
  Record record{find_experiment("example"), {}, {}};
  Result& r = record.result;
  r.settings = "s";
  r.findings = {"a < b & \"c\""};
  r.exact("example.x", 0.1);
  r.draw("lines", "1 < 2", "t",
         Lines{{"x", true}, {"y"}, {{"m", {{1, 2, 1.5, 2.5}}}, {"t", {{1, 2, 2, 2}}, Role::theory}}, "b"});
  r.draw("dots", "d", "t", Dots{{"x"}, {"one"}, {{"m", {{0, 2, 1, 3}}, Role::reference}}, ""});
  r.draw("shares", "d", "t", Distribution{{"x"}, {0, 1, 2}, {{"m", {0.25, 0.75}}}});
  r.draw("map", "<!-- <script> </script>", "t", Heatmap{"r", "c", "v", {"0"}, {"a", "b"}, {0.5, std::nan("")}, 0, 1});
  r.draw("table", "t", "t", Table{{"name", "n"}, {{std::string("a, \"b\""), 1.5}}});
  return record;
}

TEST(Json, ResultsComeBackAsTheyWere) {
  const Record record = small();
  const std::string written = to_json(record).dump();
  EXPECT_EQ(to_json(result_from_json(Json::parse(written))).dump(), to_json(record.result).dump());
  EXPECT_THROW(result_from_json(Json::parse("{}")), Json::exception);
}

TEST(Csv, QuotesWhatNeedsIt) {
  const Result result = small().result;
  EXPECT_EQ(to_csv(table_of(result.figures[4])), "name,n\n\"a, \"\"b\"\"\",1.5\n");
  EXPECT_EQ(to_csv(table_of(result.figures[3])), "r \\ c,a,b\n0,0.5,\n");
  EXPECT_EQ(to_csv(table_of(result.figures[0])), "series,x,y,low,high\nm,1,2,1.5,2.5\nt,1,2,2,2\n");
}

TEST(Report, HasEveryExperimentFigureAndClaim) {
  for (const Record& record : everything()) {
    const std::string name = record.experiment->name();
    if (name == "broken") continue;  // the breaks to find
    EXPECT_THAT(page(), HasSubstr("<section id=\"" + name + "\""));
    EXPECT_THAT(page(), HasSubstr("keel lab " + name + " --seed 7 --repeats 2"));
    for (const Findings* part : record.result.parts()) {
      for (const Figure& figure : part->figures) {
        EXPECT_THAT(page(), HasSubstr("<figure id=\"" + name + "-" + figure.id + "\""));
        EXPECT_FALSE(figure.text.empty()) << figure.id;
      }
    }
  }
  for (const Claim& claim : claims()) EXPECT_THAT(page(), HasSubstr("id=\"" + claim.id + "\""));
  EXPECT_LT(page().size(), 2'000'000u);
}

TEST(Report, TellsTheStoryInOrderWithTheLedgerLast) {
  std::size_t at = 0;
  for (const char* part : {"class=\"answer\"", "id=\"live\"", "<section id=\"growth\"", "<section id=\"softmax-step\"",
                           "<section id=\"gradient-step\"", "<section id=\"training-step\"",
                           "<section id=\"alternatives\"", "<section id=\"documents\"", "<section id=\"measurements\"",
                           "<section id=\"variance\"", "<section id=\"claims\"", "<details class=\"document\""}) {
    const std::size_t next = page().find(part, at);
    ASSERT_NE(next, std::string::npos) << part;
    at = next;
  }
}

TEST(Report, AnswersWithTheNumbersOfThisRun) {
  Measurements all;
  for (const Record& record : everything()) {
    all.insert(record.result.measurements.begin(), record.result.measurements.end());
  }
  const std::string answer = page().substr(page().find("class=\"answer\""), 2000);
  EXPECT_THAT(answer, HasSubstr(fmt::format("standard deviation of {:.2f}.", all.at("variance.unit.d64.sd").value)));
  EXPECT_THAT(answer, HasSubstr(fmt::format("{:.0f}&nbsp;% of its attention",
                                            100 * all.at("saturation.raw.d64.n64.median").value)));
  EXPECT_THAT(answer, HasSubstr(fmt::format("{:.1f} times as many steps", all.at("ablation.raw.d64.slower").value)));
  EXPECT_THAT(answer, HasSubstr(fmt::format("{:.0f} BLEU instead", all.at("translate.dot-64.bleu").value)));
  // What was not measured is not made up: the sentence has no number, and the step no figure.
  const std::string less = report({small()}, ledger({}, {}));
  EXPECT_THAT(less, HasSubstr("so its spread grows like √d_k."));
  EXPECT_THAT(less, Not(HasSubstr("data-figure=\"variance-law\"")));
}

TEST(Report, HasKernelsOrRecordedRowsAndSaysWhich) {
  const std::string with = report({small()}, ledger({}, {}), {.d3 = "", .kernels = "H4sI"});
  EXPECT_THAT(with, HasSubstr("id=\"kernels\">H4sI</script>"));
  EXPECT_THAT(with, HasSubstr("id=\"recorded\"></script>"));
  EXPECT_THAT(with, HasSubstr("id=\"editor\""));
  EXPECT_THAT(with, Not(HasSubstr("recorded rows")));

  const std::string without = report({small()}, ledger({}, {}), {.d3 = "", .kernels = ""});
  EXPECT_THAT(without, HasSubstr("the live figure steps through recorded rows"));
  EXPECT_THAT(without, Not(HasSubstr("id=\"editor\"")));
  const std::string open = "id=\"recorded\">";
  const std::string rest = without.substr(without.find(open) + open.size());
  const Json recorded = Json::parse(rest.substr(0, rest.find('<')));
  const Json& row = recorded.at("rows").at("64/16");
  double sum = 0;
  for (const double weight : row.at("unscaled").at("weights")) sum += weight;
  EXPECT_NEAR(sum, 1, 1e-3);  // four digits of each
  EXPECT_NEAR(row.at("unscaled").at("scores")[3], 8 * row.at("scaled").at("scores")[3].get<double>(), 0.01);
  EXPECT_LT(row.at("unscaled").at("entropy"), row.at("scaled").at("entropy"));
  EXPECT_EQ(recorded.at("maps").at("1024").at("scaled").at("weights").size(), 256u);
}

// Symptoms, suspects in another order than the cases, and both versions; without the experiment nothing.
TEST(Report, HasBreaksToFind) {
  const std::string all = page().substr(page().find("<section id=\"breaks\""));
  const std::string html = all.substr(0, all.find("</section>"));
  std::size_t last = 0;
  bool in_order = true;
  for (const Break& which : breaks()) {
    const std::size_t at = html.find("<div class=\"case\" data-name=\"" + which.name + "\"");
    ASSERT_NE(at, std::string::npos) << which.name;
    in_order = in_order && at > last;
    last = at;
    const std::string own = html.substr(at, html.find("<div class=\"case\"", at + 1) - at);
    const std::string before = own.substr(0, own.find("class=\"solution\" hidden"));
    EXPECT_THAT(before, HasSubstr("data-figure=\"broken-" + which.name + "-broken-"));
    EXPECT_THAT(before, Not(HasSubstr("-healthy-")));
    EXPECT_THAT(own, HasSubstr("-healthy-"));
    for (const Break& suspect : breaks()) EXPECT_THAT(before, HasSubstr("data-guess=\"" + suspect.name + "\""));
  }
  EXPECT_FALSE(in_order);
  EXPECT_THAT(page(), Not(HasSubstr("<section id=\"broken\"")));
  EXPECT_THAT(report({small()}, {}), Not(HasSubstr("id=\"breaks\"")));
}

TEST(Report, PrintsCommandsThatCanBePasted) {
  ASSERT_EQ(::setenv("KEEL_COMMAND", "/opt/k/keel", 1), 0);
  Record record = small();
  record.settings.options["data"] = "my pairs.tsv";
  const std::string html = report({record}, {});
  ::unsetenv("KEEL_COMMAND");
  EXPECT_THAT(html, HasSubstr("<code>/opt/k/keel lab example --seed 0 --data 'my pairs.tsv'</code>"));
  EXPECT_THAT(html, Not(HasSubstr("<code>keel ")));
}

TEST(Picture, ShowsWhatTheRunMeasuredOrIsLeftOut) {
  const std::string svg = picture(everything());
  const auto count = [&](const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = svg.find(text); at != std::string::npos; at = svg.find(text, at + 1)) ++n;
    return n;
  };
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_EQ(count("stroke-width=\"2.5\""), 4u);   // two curves in each of two panels
  EXPECT_EQ(count("<rect "), 1u + 2u * 16 * 16);  // the page, two maps
  EXPECT_EQ(count(">unscaled<"), 3u);             // in every panel
  EXPECT_EQ(count("nan"), 0u);
  EXPECT_EQ(picture({small()}), "");
}

TEST(Report, LeavesNoHalfRowEmpty) {
  Record record = small();  // four charts and a narrow table: the fifth has a row of its own
  EXPECT_THAT(report({record}, {}), HasSubstr("<figure id=\"example-table\" class=\"full\""));
  record.result.figures.pop_back();
  EXPECT_THAT(report({record}, {}), Not(HasSubstr("class=\"full\"")));
}

TEST(Report, LoadsNothingFromElsewhere) {
  EXPECT_THAT(page(), HasSubstr("default-src 'none'"));  // the browser would refuse
  const std::string svg = "http://www.w3.org/2000/svg";  // a name, not an address
  const std::string own =
      std::regex_replace(report(everything(), ledger(everything()), {.d3 = "", .kernels = ""}), std::regex(svg), "");
  EXPECT_THAT(own, Not(HasSubstr("http:")));
  EXPECT_THAT(own, Not(HasSubstr("https:")));
  for (const char* loads : {"<link", "<img", "<iframe", " src=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    EXPECT_THAT(own, Not(HasSubstr(loads)));
  }
}

TEST(Report, EscapesWhatItIsGiven) {
  const Record record = small();
  const std::string html = report({record}, ledger({}, {}), {.d3 = "/* d3 */"});
  EXPECT_THAT(html, HasSubstr("a &lt; b &amp; &quot;c&quot;"));
  // Nothing in the data of the charts can end the element it is in, or hide its end.
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  ASSERT_THAT(html, HasSubstr(open));
  const std::string rest = html.substr(html.find(open) + open.size());
  const std::string data = rest.substr(0, rest.find('<'));
  EXPECT_TRUE(rest.substr(data.size()).starts_with("</script>"));
  EXPECT_EQ(Json::parse(data).at("example-map").at("title"), "<!-- <script> </script>");
  EXPECT_THAT(html, Not(HasSubstr("<h3><!--")));
  EXPECT_THAT(html, Not(HasSubstr("{{")));  // every place is filled
}

TEST(Report, SaysWhyChartsAreLeftOutWithoutD3) {
  const std::string html = report({small()}, ledger({}, {}), {.d3 = ""});
  EXPECT_THAT(html, HasSubstr("built without D3, so charts are left out"));
  EXPECT_THAT(html, HasSubstr("0.75"));  // the numbers are there
  EXPECT_THAT(report({small()}, ledger({}, {}), {.d3 = "/* d3 */"}), Not(HasSubstr("built without D3")));
}

TEST(Folder, KeepsOnlyResultsOfTheSameRun) {
  const TemporaryFolder place;
  const Folder folder(place / "out");
  const Record record = run("example", {.full = false, .seed = 3, .repeats = 2});
  folder.save(record);
  folder.publish({record});
  EXPECT_THAT(text_of(place / "out/example-scores.csv"), HasSubstr("S,key 1,key 2,key 3"));
  EXPECT_EQ(Json::parse(text_of(place / "out/claims.json")).size(), ledger({record}).size());
  EXPECT_THAT(text_of(place / "out/index.html"), HasSubstr("<section id=\"example\""));

  const auto again = folder.load(*record.experiment, record.settings);
  ASSERT_TRUE(again);
  EXPECT_EQ(to_json(*again).dump(), to_json(record).dump());
  EXPECT_FALSE(folder.load(*record.experiment, {.full = false, .seed = 4, .repeats = 2}));
  EXPECT_FALSE(folder.load(*record.experiment, {.full = true, .seed = 3, .repeats = 2}));
  EXPECT_FALSE(folder.load(*find_experiment("length"), record.settings));
  for (const char* damaged : {"", "{\"keel\":", "[]", "{}"}) {
    io::write_file(place / "out/example.json", damaged);
    EXPECT_FALSE(folder.load(*record.experiment, record.settings)) << damaged;
  }
}

TEST(Folder, KeepsTimesApart) {
  const TemporaryFolder place;
  const Folder folder(place / "out");
  Record record = small();
  const std::string without = to_json(record).dump();
  record.result.times.exact("example.seconds", 0.25);
  record.result.times.draw("clock", "t", "t", Table{{"s"}, {{0.25}}});
  folder.save(record);
  EXPECT_THAT(text_of(place / "out/example.json"), Not(HasSubstr("seconds")));
  EXPECT_THAT(text_of(place / "out/example-times.json"), HasSubstr("example.seconds"));
  EXPECT_EQ(text_of(place / "out/example-clock.csv"), "s\n0.25\n");
  const auto again = folder.load(*record.experiment, record.settings);
  ASSERT_TRUE(again);
  EXPECT_EQ(times_json(*again).dump(), times_json(record).dump());
  EXPECT_THAT(report({record}, ledger({}, {}), {.d3 = ""}), HasSubstr("<figure id=\"example-clock\""));

  std::filesystem::remove(place / "out/example-times.json");  // half of a result is none
  EXPECT_FALSE(folder.load(*record.experiment, record.settings));
  record.result.times = {};
  EXPECT_EQ(to_json(record).dump(), without);
}

TEST(Folder, IsTriedBeforeAnyWorkAndLeftAsItWas) {
  const TemporaryFolder place;
  io::write_file(place / "file", "x");
  EXPECT_THROW(Folder{place / "file"}, Error);
  EXPECT_THROW(Folder{place / "file/below"}, Error);
  const Folder folder(place / "new/nested/");
  EXPECT_EQ(folder.report_path(), place / "new/nested/index.html");
  EXPECT_TRUE(std::filesystem::is_empty(place / "new/nested"));
}

}  // namespace
}  // namespace keel::test
