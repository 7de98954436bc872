// The configuration file: its lines, and how options take its values.
#include "load/config_file.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "load/option_table.h"
#include "minisgl/base/utf8.h"

namespace minisgl::load {
namespace {

std::string ErrorIn(const std::string& text) {
  const auto entries = ParseConfig(text, "c.ini");
  return entries.ok() ? "" : entries.status().message();
}

TEST(ConfigFileTest, LinesAreSectionsCommentsAndValues) {
  const auto entries = ParseConfig(
      "\xEF\xBB\xBF# c\n ; c\nmodel = a b # no comment \r\n\n[ run ]\n"
      "stop = \" x\\n\\t\\\"\\\\\"\n\tquiet=true",
      "c.ini");
  ASSERT_TRUE(entries.ok()) << entries.status().message();
  ASSERT_EQ(entries->size(), 3u);
  EXPECT_EQ((*entries)[0].section, "");
  EXPECT_EQ((*entries)[0].name, "model");
  EXPECT_EQ((*entries)[0].value, "a b # no comment");
  EXPECT_EQ((*entries)[0].line, 3);
  EXPECT_EQ((*entries)[1].section, "run");
  EXPECT_EQ((*entries)[1].value, " x\n\t\"\\");
  EXPECT_EQ((*entries)[2].name, "quiet");
  EXPECT_EQ((*entries)[2].value, "true");
  EXPECT_EQ((*entries)[2].line, 7);
}

TEST(ConfigFileTest, ErrorsNameTheirLine) {
  EXPECT_EQ(ErrorIn("a = 1\nquiet\n"),
            "c.ini:2: a line is NAME = VALUE; an option without a value is NAME = true (found "
            "quiet)");
  EXPECT_EQ(ErrorIn("[run\n"), "c.ini:1: a section is [NAME] (found [run)");
  EXPECT_EQ(ErrorIn("[]"), "c.ini:1: a section needs a name");
  EXPECT_EQ(ErrorIn("= 1"), "c.ini:1: no name stands before =");
  EXPECT_EQ(ErrorIn("a = \"x"), "c.ini:1: the quotation mark of the value is not closed");
  EXPECT_EQ(ErrorIn("a = \"x\" y"),
            "c.ini:1: text follows the quotation mark at the end of the value (found  y)");
  EXPECT_EQ(ErrorIn("a = \"\\x\""),
            "c.ini:1: a backslash stands for \\n, \\t, \\\" and \\\\ in quotation marks (found "
            "\\x)");
}

TEST(ConfigFileTest, AnyBytesAreReadOrRefused) {
  std::mt19937 random(1);
  using std::literals::operator""sv;
  constexpr std::string_view letters = "ab=[]\"\\\n\r\t #;\0\xFF\xC3\xA9"sv;
  int num_read = 0, num_refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (int length = static_cast<int>(random() % 40); length > 0; --length) {
      text += letters[random() % letters.size()];
    }
    const auto entries = ParseConfig(text, "c.ini");
    ++(entries.ok() ? num_read : num_refused);
    if (entries.ok()) continue;
    const std::string& message = entries.status().message();
    EXPECT_TRUE(message.starts_with("c.ini:")) << message;
    EXPECT_TRUE(IsValidUtf8(message)) << message;
  }
  EXPECT_GT(num_read, 100);
  EXPECT_GT(num_refused, 100);
}

// A program of two commands, one with a command below it.
class TakenConfigTest : public ::testing::Test {
 protected:
  // Returns the error of a command line with the file `text`, "" if there is none.
  std::string Parse(const std::string& text, const std::vector<std::string>& arguments) {
    ConfigFile file;
    file.path = "c.ini";
    auto entries = ParseConfig(text, file.path);
    file.status = entries.status();
    if (entries.ok()) file.entries = std::move(entries).value();
    table_ = std::make_unique<OptionTable>("prog", "Does it.");
    table_->UseConfig(std::move(file));
    OptionTable* run = table_->AddSubcommand("run", "Runs.");
    run->Add("-t,--temperature", &temperature_, "T")->Check(NumberCheck);
    run->Add("--stop", &stop_, "S")->OneValueEach();
    run->AddFlag("-q,--quiet", &quiet_, "Q");
    run->Add("--model", &model_, "M");
    run->Add("FILE", &file_, "F");
    OptionTable* bench = table_->AddSubcommand("bench", "Measures.");
    OptionTable* nano = bench->AddSubcommand("nano", "N.");
    nano->Add("--model", &bench_model_, "M");
    nano->Add("--threads", &threads_, "N");
    const Result<std::string> parsed = table_->Parse(arguments);
    return !parsed.ok() ? parsed.status().message() : table_->config()->status.message();
  }
  static std::string NumberCheck(const std::string& text) {
    return text == "bad" ? "must be a number (found bad)" : "";
  }

  std::unique_ptr<OptionTable> table_;
  std::optional<double> temperature_;
  std::vector<std::string> stop_;
  bool quiet_ = false;
  std::string model_, file_, bench_model_;
  std::optional<int32_t> threads_;
};

TEST_F(TakenConfigTest, ValuesCountUnlessTheCommandLineHasThem) {
  const std::string text =
      "model = all\n[run]\ntemperature = 0.5\nstop = a, [b]\nstop = \"\\n\"\nquiet = true\n"
      "[bench nano]\nmodel = own\nthreads = 3\n";
  EXPECT_EQ(Parse(text, {"run"}), "");
  EXPECT_EQ(temperature_, 0.5);
  EXPECT_EQ(stop_, (std::vector<std::string>{"a, [b]", "\n"}));
  EXPECT_TRUE(quiet_);
  EXPECT_EQ(model_, "all");
  EXPECT_EQ(bench_model_, "own");
  EXPECT_EQ(threads_, 3);
  EXPECT_EQ(Parse(text, {"run", "-t", "2", "--stop", "c", "--quiet=false", "--model", "m"}), "");
  EXPECT_EQ(temperature_, 2);
  EXPECT_EQ(stop_, std::vector<std::string>{"c"});
  EXPECT_FALSE(quiet_);
  EXPECT_EQ(model_, "m");
}

TEST_F(TakenConfigTest, NoConfigLeavesItOutEvenIfItIsBad) {
  EXPECT_EQ(Parse("[run]\nquiet = true\nx = y\n", {"run", "--no-config"}), "");
  EXPECT_FALSE(quiet_);
  EXPECT_EQ(Parse("broken", {"run", "--no-config"}), "");
}

TEST_F(TakenConfigTest, ErrorsNameTheirLine) {
  EXPECT_EQ(Parse("\n[run]\ntemperature = bad\n", {"run"}),
            "c.ini:3: temperature: must be a number (found bad)");
  EXPECT_EQ(Parse("temperatur = 1\n", {"run"}),
            "c.ini:1: no option of any command is called temperatur; did you mean temperature?");
  EXPECT_EQ(Parse("temp = 1\n", {"run"}),
            "c.ini:1: no option of any command is called temp; did you mean temperature?");
  EXPECT_EQ(Parse("model-path = m\n", {"run"}),
            "c.ini:1: no option of any command is called model-path; did you mean model?");
  EXPECT_EQ(Parse("[bench nano]\nthreads = 1\n[run]\nthreads = 1\n", {"run"}),
            "c.ini:4: no option of minisgl run is called threads");
  EXPECT_EQ(
      Parse("[rum]\nthreads = 1\n", {"run"}),
      "c.ini:2: [rum] is no command; a section has the name of one, as [run] or [bench nano]");
  EXPECT_EQ(Parse("[run]\ntemperature = 1\nquiet = yes\n", {"run"}),
            "c.ini:3: quiet is true or false (found yes)");
  EXPECT_EQ(Parse("[run]\ntemperature = 1\ntemperature = 2\n", {"run"}),
            "c.ini:3: temperature has a value already, on line 2");
  EXPECT_NE(Parse("[run]\ntemperature = x\n", {"run"}).find("c.ini:2: "), std::string::npos);
  EXPECT_NE(Parse("no-config = true\n", {"run"}).find("c.ini:1: no option"), std::string::npos);
  EXPECT_NE(Parse("file = x\n", {"run"}).find("c.ini:1: no option"), std::string::npos)
      << "an argument is no option";
}

}  // namespace
}  // namespace minisgl::load
