// Help and suggestions, made from the table of options.
#include "load/help_text.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "load/option_table.h"

namespace minisgl::load {
namespace {

enum class Colour : uint8_t { kRed, kBlue };
constexpr Choice<Colour> kColours[] = {{"red", Colour::kRed}, {"blue", Colour::kBlue}};

// A program with commands of one level and of two.
class HelpTest : public ::testing::Test {
 protected:
  HelpTest() {
    OptionTable* paint = table_.AddSubcommand("paint", "Paint a wall");
    paint->Add("-w,--wall", &wall_, "The wall that is painted, which has a long help text")
        ->TypeName("FILE");
    paint->AddChoice("--colour", &colour_, kColours, "It's red or [blue]")->Group("Look");
    paint->AddFlag("--shiny", &shiny_, "Shine")->Group("Look")->Advanced();
    OptionTable* measure = table_.AddSubcommand("measure", "Measure a wall");
    OptionTable* height = measure->AddSubcommand("height", "From floor to ceiling");
    height->Add("--unit", &unit_, "The unit")->TypeName("NAME")->EnvName("WALL_UNIT");
    height->Add("N", &number_, "How often");
  }

  // The text of the answer, or of the error.
  std::string Parse(const std::vector<std::string>& arguments) {
    const Result<std::string> answer = table_.Parse(arguments);
    return answer.ok() ? *answer : answer.status().message();
  }

  OptionTable table_{"walls", "Works on walls"};
  std::string wall_, unit_;
  Colour colour_ = Colour::kRed;
  bool shiny_ = false;
  int32_t number_ = 0;
};

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(HelpTest, HelpListsCommonOptionsAndHelpAllTheRest) {
  const std::string common = Parse({"paint", "--help"});
  EXPECT_TRUE(Has(common, "Usage: walls paint [OPTIONS]\n")) << common;
  EXPECT_TRUE(Has(common, "\nLook:\n  --colour ")) << common;
  EXPECT_FALSE(Has(common, "--shiny")) << common;
  EXPECT_TRUE(Has(common, "walls paint --help-all lists 1 more options.")) << common;
  const std::string all = Parse({"paint", "--help-all"});
  EXPECT_TRUE(Has(all, "--shiny")) << all;
  EXPECT_FALSE(Has(all, "lists 1 more")) << all;
}

TEST_F(HelpTest, HelpAllOfAProgramHoldsThatOfItsCommands) {
  const std::string all = Parse({"--help-all"});
  for (const char* part : {"Usage: walls paint", "--shiny", "Usage: walls measure height"}) {
    EXPECT_TRUE(Has(all, part)) << part;
  }
  EXPECT_FALSE(Has(Parse({"--help"}), "--shiny"));
}

TEST_F(HelpTest, ArgumentsStandInTheUsageAndEnvironmentVariablesInTheHelp) {
  const std::string help = Parse({"measure", "height", "--help"});
  EXPECT_TRUE(Has(help, "Usage: walls measure height [OPTIONS] N\n")) << help;
  EXPECT_TRUE(Has(help, "The unit [env: WALL_UNIT]")) << help;
}

TEST_F(HelpTest, LinesAreAsWideAsAllowedAndNoWordIsLost) {
  std::string words;
  for (const size_t columns : {40, 57, 80, 200}) {
    table_.SetHelpWidth(columns);
    std::istringstream help(Parse({"--help-all"}));
    std::string all;
    for (std::string line; std::getline(help, line);) {
      EXPECT_LE(line.size(), columns) << line;
      std::istringstream of_line(line);
      for (std::string word; of_line >> word;) all += word + ' ';
    }
    if (words.empty()) words = all;
    EXPECT_EQ(all, words) << columns;
  }
}

TEST_F(HelpTest, HelpOfACommandByItsName) {
  const Result<std::string> help = table_.Help({"measure", "height"});
  ASSERT_TRUE(help.ok());
  EXPECT_EQ(*help, Parse({"measure", "height", "--help"}));
  EXPECT_EQ(table_.Help({"measure", "hight"}).status().message(),
            "unknown command (hight); did you mean height? See walls measure --help");
}

TEST_F(HelpTest, OptionsMayStandBeforeTheirCommand) {
  EXPECT_EQ(Parse({"-w", "paint", "--colour=blue", "paint", "--shiny"}), "");
  EXPECT_EQ(wall_, "paint");
  EXPECT_EQ(colour_, Colour::kBlue);
  EXPECT_TRUE(shiny_);
}

TEST_F(HelpTest, OptionsMayStandBeforeTwoCommands) {
  EXPECT_EQ(Parse({"--unit", "m", "measure", "height", "3"}), "");
  EXPECT_EQ(unit_, "m");
  EXPECT_EQ(number_, 3);
}

TEST_F(HelpTest, OptionsOfAnotherCommandAreRefused) {
  EXPECT_TRUE(Has(Parse({"--unit", "m", "paint"}), "unknown option (--unit)"));
  EXPECT_EQ(unit_, "");
}

TEST_F(HelpTest, MisspeltNamesAreToldTheNearest) {
  EXPECT_EQ(Parse({"pait"}), "unknown command (pait); did you mean paint? See walls --help");
  EXPECT_EQ(Parse({"--wal", "x", "paint"}),
            "unknown option (--wal); did you mean --wall? See walls paint --help");
  EXPECT_EQ(Parse({"paint", "--color", "red"}),
            "unknown option (--color); did you mean --colour? See walls paint --help");
  EXPECT_EQ(Parse({"paint", "--nothing"}), "unknown option (--nothing); see walls paint --help");
  EXPECT_EQ(Parse({"paint", "x"}), "unknown argument (x); see walls paint --help");
}

// A short option takes a value without a blank only if the value has the form of its values.
TEST_F(HelpTest, TextBehindAShortOptionIsItsValueOrRefused) {
  bool quiet = false, verbose = false;
  int32_t count = 0;
  double share = 0;
  OptionTable* ask = table_.AddSubcommand("ask", "Ask");
  ask->Add("-n,--count", &count, "How often");
  ask->Add("-t,--share", &share, "How much");
  ask->Add("-w,--wall", &wall_, "Which");
  ask->AddFlag("-q,--quiet", &quiet, "Say less");
  ask->AddFlag("-v,--verbose", &verbose, "Say more");
  EXPECT_EQ(Parse({"ask", "-n5", "-t0.5", "-wnorth", "-qv"}), "");
  EXPECT_EQ(count, 5);
  EXPECT_EQ(share, 0.5);
  EXPECT_EQ(wall_, "north");
  EXPECT_TRUE(quiet && verbose);
  EXPECT_EQ(Parse({"ask", "-qn7", "-t-1e3", "-w", "-hold"}), "");
  EXPECT_EQ(count, 7);
  EXPECT_EQ(share, -1000);
  EXPECT_EQ(wall_, "-hold");
  for (const char* word : {"-no", "-n5x", "-hello", "-qh", "-tall", "-xyz", "-t", "-nan"}) {
    EXPECT_NE(Parse({"ask", word}), "") << word;
  }
  EXPECT_EQ(Parse({"ask", "-no"}), "unknown option (-no); see walls ask --help");
  EXPECT_EQ(Parse({"ask", "-hq"}), "unknown option (-hq); see walls ask --help");
  EXPECT_EQ(Parse({"ask", "-count", "3"}),
            "unknown option (-count); did you mean --count? See walls ask --help");
  EXPECT_EQ(Parse({"-no", "ask"}), "unknown option (-no); see walls ask --help");
}

TEST_F(HelpTest, ALineWithoutACommandIsToldTheCommands) {
  EXPECT_EQ(Parse({}), "no command given; see walls --help");
  EXPECT_TRUE(Has(Parse({"-w", "x"}), "no command given with -w; walls needs one of paint, "));
}

}  // namespace
}  // namespace minisgl::load
