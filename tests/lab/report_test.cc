// What a run leaves behind: JSON that can be read back, CSV, and a page that needs nothing but itself.
#include "lab/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include "io/file.h"
#include "keel/error.h"
#include "lab/folder.h"
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
  EXPECT_LT(page().find("id=\"claims\""), page().find("<section id=\"example\""));
  EXPECT_LT(page().size(), 8u << 20);
}

TEST(Report, LoadsNothingFromElsewhere) {
  EXPECT_THAT(page(), HasSubstr("default-src 'none'"));  // the browser would refuse
  const std::string own = report(everything(), ledger(everything()), "");
  EXPECT_THAT(own, Not(HasSubstr("http:")));
  EXPECT_THAT(own, Not(HasSubstr("https:")));
  for (const char* loads : {"<link", "<img", "<iframe", " src=", "@import", "url(", "fetch(", "XMLHttpRequest"}) {
    EXPECT_THAT(own, Not(HasSubstr(loads)));
  }
}

TEST(Report, EscapesWhatItIsGiven) {
  const Record record = small();
  const std::string html = report({record}, ledger({}, {}), "/* d3 */");
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
  const std::string html = report({small()}, ledger({}, {}), "");
  EXPECT_THAT(html, HasSubstr("built without D3, so charts are left out"));
  EXPECT_THAT(html, HasSubstr("0.75"));  // the numbers are there
  EXPECT_THAT(report({small()}, ledger({}, {}), "/* d3 */"), Not(HasSubstr("built without D3")));
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
  EXPECT_THAT(report({record}, ledger({}, {}), ""), HasSubstr("<figure id=\"example-clock\""));

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
