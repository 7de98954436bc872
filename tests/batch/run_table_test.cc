// Runs whose output is a table: columns of the input and columns of the answers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "batch/table_text.h"
#include "minisgl/base/json.h"
#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::batch {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
using Table = std::vector<std::vector<std::string>>;

constexpr const char* kAsk = "What is the capital of {{ country }}?";

class RunTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  }
  Arguments Command(const std::string& input, const std::string& output,
                    const Arguments& more = {}) const {
    Arguments arguments = {"run", "-m", DemoModel(), "--quiet", "--threads",
                           "1",   "-f", input,       "-o",      folder_.Path(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  ProgramResult Run(const std::string& input, const std::string& output,
                    const Arguments& more = {"--template", kAsk}) const {
    return RunProgram(Command(input, output, more));
  }
  Table Read(const std::string& name, char separator = ',') const {
    const std::string text = folder_.Read(name);
    RecordScanner scanner(separator);
    Table table;
    for (size_t begin = 0; begin < text.size();) {
      size_t scanned = begin;
      const auto end = scanner.Find(text, &scanned, true);
      EXPECT_TRUE(end) << "the last line has no end";
      if (!end) break;
      const auto fields =
          ParseRecord(std::string_view(text).substr(begin, end->end - begin), separator);
      EXPECT_TRUE(fields.ok()) << fields.status().message();
      table.push_back(fields.ok() ? *fields : std::vector<std::string>());
      begin = end->next;
    }
    return table;
  }
  static std::string Many(int rows) {
    std::string text = "n,country\n";
    const char* countries[] = {"Peru", "France", "Italy", "Spain"};
    for (int i = 0; i < rows; ++i) {
      text += std::to_string(i) + "," + countries[i % 4] + "\n";
    }
    return text;
  }

  TemporaryFolder folder_;
};

TEST_F(RunTableTest, TheAnswersStandBesideTheColumnsOfTheInput) {
  const std::string input =
      folder_.Write("in.csv",
                    "\xEF\xBB\xBF"
                    "country,text,text\r\nPeru,\"a, \"\"b\"\"\nc\",\xC3\xA9\r\nFrance\r\n"
                    "Italy,1,2,3\r\nSpain,\xE9,\r\n\"Peru");
  const ProgramResult run = Run(input, "out.csv");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const Table table = Read("out.csv");
  ASSERT_EQ(table.size(), 6u);
  EXPECT_EQ(table[0],
            (std::vector<std::string>{"country", "text", "text", "answer_text", "error"}));
  EXPECT_EQ(table[1], (std::vector<std::string>{"Peru", "a, \"b\"\nc", "\xC3\xA9",
                                                "The capital of Peru is Lima.", ""}));
  EXPECT_EQ(table[2],
            (std::vector<std::string>{"France", "", "", "The capital of France is Paris.", ""}));
  EXPECT_EQ(table[3],
            (std::vector<std::string>{"Italy", "1", "2", "",
                                      "invalid_row: has 4 fields, and the header has 3"}));
  EXPECT_EQ(table[4][1], "\xE9") << "bytes of the input are kept as they are";
  EXPECT_EQ(table[4][4].substr(0, 12), "invalid_row:");
  EXPECT_EQ(table[5][4], "invalid_row: the quotation mark of field 1 is not closed");
  // The rows stay beside it.
  EXPECT_EQ(Lines(folder_.Read("out.csv.jsonl")).size(), 5u);
}

// The rows beside a table are on disk as they end: the second row does not wait for the first one,
// whose answer is long. At the end they are in the order of the input.
TEST_F(RunTableTest, RowsAreOnDiskBeforeEarlierOnesEnd) {
  const std::string input =
      folder_.Write("in.csv", "q\nTell me a story.\nWhat is the capital of Peru?\n");
  const std::string out = folder_.Path("out.csv");
  int64_t first_index = -1;
  // A run that ended before its file was looked at has sorted it.
  while (first_index < 0) {
    fs::remove(out);
    Program program(
        Command(input, "out.csv",
                {"--template", "{{ q }}", "--policy", "fcfs", "--cpu-target", "naive", "--force"}),
        {});
    while (program.Runs() && folder_.Read("out.csv.jsonl").find('\n') == std::string::npos) {
    }
    program.Signal(SIGKILL);
    program.Wait();
    if (fs::exists(out)) continue;
    const Result<Json> row = ParseJson(Lines(folder_.Read("out.csv.jsonl"))[0]);
    ASSERT_TRUE(row.ok());
    first_index = row->Find("index")->as_int();
  }
  EXPECT_EQ(first_index, 1);
  const ProgramResult resumed = Run(input, "out.csv", {"--template", "{{ q }}", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  const std::vector<std::string> rows = Lines(folder_.Read("out.csv.jsonl"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NE(rows[0].find("\"index\": 0,"), std::string::npos) << rows[0];
  EXPECT_EQ(Read("out.csv").size(), 3u);
}

// A record that cannot be divided into columns is kept whole, to be corrected and run again.
TEST_F(RunTableTest, ErrorsKeepTheWholeRecordAndItsLine) {
  const std::string input =
      folder_.Write("in.csv", "id,q\na,\"two\nlines\"\nd,extra,4\ne,\nf,\"open, and\nmore\n");
  const ProgramResult run = Run(
      input, "out.csv", {"--template", "{{ q }}{{ fail }}", "--errors", folder_.Path("bad.csv")});
  EXPECT_EQ(run.exit_code, 65) << run.err;
  const ProgramResult some = Run(input, "out.csv",
                                 {"--template", "{% if id == 'e' %}{{ fail }}{% endif %}{{ q }}",
                                  "-n", "4", "--errors", folder_.Path("bad.csv")});
  EXPECT_EQ(some.exit_code, 1) << some.err;
  const Table bad = Read("bad.csv");
  ASSERT_EQ(bad.size(), 4u);
  EXPECT_EQ(bad[0], (std::vector<std::string>{"id", "q", "error", "line", "record"}));
  EXPECT_EQ(bad[1], (std::vector<std::string>{"d", "extra",
                                              "invalid_row: has 3 fields, and the header has 2",
                                              "4", "d,extra,4"}));
  EXPECT_EQ(bad[2][0], "e");
  EXPECT_EQ(bad[2][3], "5");
  EXPECT_EQ(bad[2][4], "");
  EXPECT_EQ(bad[3][3], "6");
  EXPECT_EQ(bad[3][4], "f,\"open, and\nmore\n");
}

// Scores of a table: each label after each text, say.
TEST_F(RunTableTest, ScoresAreColumns) {
  const std::string input = folder_.Write("in.csv", "id,q,a\n1,Peru,Lima\n2,Italy,\n");
  const ProgramResult run =
      RunProgram({"score", "-m", DemoModel(), "--quiet", "--threads", "1", "-f", input,
                  "--template", "{{ a }}", "--prompt-template", "The capital of {{ q }} is ", "-o",
                  folder_.Path("out.csv")});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const Table table = Read("out.csv");
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0], (std::vector<std::string>{"id", "q", "a", "logprob", "num_tokens", "error"}));
  const ProgramResult row =
      RunProgram({"score", "-m", DemoModel(), "--quiet", "--threads", "1"},
                 {R"({"prompt": "The capital of Peru is ", "text": "Lima"})", "", {}});
  const Result<Json> score = ParseJson(row.out);
  ASSERT_TRUE(score.ok()) << row.out << row.err;
  EXPECT_EQ(table[1][3], score->Find("logprob")->Dump());
  EXPECT_EQ(table[1][4], score->Find("num_tokens")->Dump());
  EXPECT_EQ(table[2][5], "invalid_row: the template gives no text to score");
}

TEST_F(RunTableTest, TokenizeTakesThemAsRunDoes) {
  const std::string input = folder_.Write("in.tsv", "country\nPeru\n");
  const ProgramResult table =
      RunProgram({"tokenize", "-m", DemoModel(), "--file", input, "--template", kAsk});
  const ProgramResult row =
      RunProgram({"tokenize", "-m", DemoModel()}, {"What is the capital of Peru?\n", "", {}});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_EQ(table.out, row.out);
  const ProgramResult lines =
      RunProgram({"tokenize", "-m", DemoModel(), "--template", kAsk}, {"Peru\n", "", {}});
  EXPECT_EQ(lines.exit_code, 64);
}

TEST_F(RunTableTest, PropertiesOfASchemaAreColumns) {
  const std::string schema = folder_.Write(
      "schema.json",
      R"({"type": "object", "properties": {"country": {"enum": ["x"]}, "n": {"const": true},
          "list": {"const": ["a", null]}, "none": {"type": "null"}},
          "required": ["country", "n", "list", "none"], "additionalProperties": false})");
  const std::string input = folder_.Write("in.tsv", "country\tid\nPeru\tr1\nFrance\tr2\n");
  const Arguments more = {"--template", kAsk, "--json-schema", schema};
  const ProgramResult run = Run(input, "out.tsv", more);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Table table = Read("out.tsv", '\t');
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[0], (std::vector<std::string>{"country", "id", "answer_country", "n", "list",
                                                "none", "error"}));
  EXPECT_EQ(table[1],
            (std::vector<std::string>{"Peru", "r1", "x", "true", "[\"a\", null]", "", ""}));
  // An answer that is cut is no object.
  Arguments cut = more;
  cut.insert(cut.end(), {"-n", "2"});
  const ProgramResult run_of_cut = Run(input, "cut.csv", cut);
  EXPECT_EQ(run_of_cut.exit_code, 1);
  EXPECT_NE(run_of_cut.err.find("2 failed: 2 incomplete_answer; first: line 2: the answer was cut "
                                "before its form was complete (finish_reason length)"),
            std::string::npos)
      << run_of_cut.err;
  const std::string error = Read("cut.csv")[1].back();
  EXPECT_TRUE(error.starts_with("incomplete_answer: the answer was cut ")) << error;
  EXPECT_NE(error.find(": {"), std::string::npos) << error;
  // They are failed records.
  cut.insert(cut.end(), {"--errors", folder_.Path("bad.csv")});
  EXPECT_EQ(Run(input, "good.csv", cut).exit_code, 1);
  EXPECT_EQ(Read("good.csv").size(), 1u);
  EXPECT_EQ(Read("bad.csv").size(), 3u);
  EXPECT_EQ(Read("bad.csv")[2][2], error);
  // A stop string was asked for: the run answered, and the table says that it cannot show it.
  Arguments stopped = more;
  stopped.insert(stopped.end(), {"--stop", "true"});
  const ProgramResult run_of_stopped = Run(input, "stopped.csv", stopped);
  EXPECT_EQ(run_of_stopped.exit_code, 1);
  EXPECT_NE(run_of_stopped.err.find("stopped.csv: 2 answers are no JSON object"), std::string::npos)
      << run_of_stopped.err;
}

TEST_F(RunTableTest, MembersOfJsonObjectsAreColumns) {
  const std::string input = folder_.Write(
      "in.jsonl",
      "{\"country\": \"Peru\", \"n\": 1}\n{\"country\": \"France\", \"tags\": [1, \"a\"]}\n");
  EXPECT_EQ(Run(input, "out.csv").exit_code, 0);
  EXPECT_EQ(Read("out.csv"),
            (Table{{"country", "n", "tags", "text", "error"},
                   {"Peru", "1", "", "The capital of Peru is Lima.", ""},
                   {"France", "", "[1, \"a\"]", "The capital of France is Paris.", ""}}));
}

TEST_F(RunTableTest, PlanAndCheckReadTablesToo) {
  const std::string input = folder_.Write("in.csv", Many(3) + "\"3\n\",Peru,x\n");
  const ProgramResult plan =
      RunProgram({"plan", "-m", DemoModel(), input, "--template", kAsk, "--json"});
  EXPECT_EQ(plan.exit_code, 1) << plan.err;
  const Result<Json> figures = ParseJson(plan.out);
  ASSERT_TRUE(figures.ok()) << plan.out;
  EXPECT_EQ(*figures->Find("rows"), Json(4));
  EXPECT_EQ(*figures->Find("bad_rows"), Json(1));
  EXPECT_NE(plan.err.find("in.csv:5: invalid_row: has 3 fields"), std::string::npos) << plan.err;
  const ProgramResult check = Run(input, "none.csv", {"--template", kAsk, "--check"});
  EXPECT_EQ(check.exit_code, 65);
  EXPECT_NE(check.err.find("in.csv:5: invalid_row: has 3 fields"), std::string::npos) << check.err;
  EXPECT_FALSE(fs::exists(folder_.Path("none.csv.jsonl")));
  // One misspelt column is an error of the run, not of each row.
  const ProgramResult misspelt = Run(input, "none.csv", {"--template", "{{ contry }}"});
  EXPECT_EQ(misspelt.exit_code, 65);
  EXPECT_NE(misspelt.err.find("'contry' is undefined"), std::string::npos) << misspelt.err;
  EXPECT_NE(misspelt.err.find("the columns are n, country"), std::string::npos) << misspelt.err;
  EXPECT_FALSE(fs::exists(folder_.Path("none.csv.jsonl")));
}

// Single braces are what other templates have.
TEST_F(RunTableTest, ATemplateThatNamesNoColumnIsRefused) {
  const std::string table = folder_.Write("in.csv", "id,text\n1,Peru\n2,France\n");
  const std::string objects = folder_.Write("in.jsonl", "{\"id\": 1, \"Full text\": \"Peru\"}\n");
  const struct {
    const std::string& input;
    Arguments more;
    const char* message;
  } cases[] = {
      {table,
       {"--template", "Classify: {text}"},
       "--template: has no {{ }}, so that each row would be asked the same; write {{ text }} for "
       "{text}"},
      {table, {"--template", "Classify: {text}", "--check"}, "write {{ text }} for {text}"},
      {table,
       {"--template", "Classify this."},
       "write {{ text }} where its text belongs; the columns are id, text"},
      {table, {"--template", "Classify", "--system-template", "{id}"}, "write {{ id }} for {id}"},
      {objects,
       {"--template", "Classify: {Full text}"},
       "write {{ row[\"Full text\"] }} for {Full text}"},
      {objects, {"--template", "$text"}, "the columns are id, Full text"},
  };
  for (const auto& refused : cases) {
    const ProgramResult run = Run(refused.input, "none.csv", refused.more);
    EXPECT_EQ(run.exit_code, 64) << refused.message;
    EXPECT_NE(run.err.find(refused.message), std::string::npos) << refused.message << run.err;
  }
  EXPECT_FALSE(fs::exists(folder_.Path("none.csv.jsonl")));
  for (const Arguments& command :
       {Arguments{"plan", table}, Arguments{"tokenize", "--file", table}}) {
    Arguments arguments = command;
    arguments.insert(arguments.end(), {"-m", DemoModel(), "--template", "{text}"});
    const ProgramResult result = RunProgram(arguments);
    EXPECT_EQ(result.exit_code, 64) << result.out;
    EXPECT_NE(result.err.find("write {{ text }} for {text}"), std::string::npos) << result.err;
  }
  // The column may be in the other template, and braces may be text.
  EXPECT_EQ(
      Run(table, "a.csv", {"--template", "Name it.", "--system-template", "{{ text }}"}).exit_code,
      0);
  const ProgramResult warned =
      Run(table, "b.csv", {"--template", "{% if id %}{id}{% endif %} {{ text }} {{text}} {json}"});
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_EQ(warned.err,
            "minisgl: --template: {id} in single braces is text as it stands; {{ id }} is the "
            "column\n");
}

TEST_F(RunTableTest, ATableThatCannotBeAskedNamesItsColumns) {
  const std::string table = folder_.Write("in.csv", "id,q,x\n1,Peru,a\n2,France,b\n3,Italy,c\n");
  const ProgramResult run = Run(table, "none.csv", {"--template", "Say {{ nosuch }}"});
  EXPECT_EQ(run.exit_code, 65) << run.err;
  EXPECT_NE(run.err.find("; none of the 3 rows can be asked; the columns are id, q, x"),
            std::string::npos)
      << run.err;
  EXPECT_FALSE(fs::exists(folder_.Path("none.csv")));
}

// A run killed at some moment, resumed to its end, and retried gives the table of one run.
TEST_F(RunTableTest, AResumedRunGivesTheSameTable) {
  const std::string input = folder_.Write("in.csv", Many(150));
  ASSERT_EQ(Run(input, "right.csv").exit_code, 0);
  const std::string right = folder_.Read("right.csv");
  EXPECT_EQ(Lines(right).size(), 151u);
  for (const int number : {SIGKILL, SIGTERM}) {
    fs::remove(folder_.Path("out.csv"));
    fs::remove(folder_.Path("out.csv.jsonl"));
    {
      Program program(Command(input, "out.csv", {"--template", kAsk, "--force", "--grace", "0"}),
                      {});
      while (program.Runs() && folder_.Read("out.csv.jsonl").size() < 2000) {
      }
      program.Signal(number);
      program.Wait();
    }
    if (folder_.Read("out.csv").empty()) {
      const ProgramResult resumed = Run(input, "out.csv", {"--template", kAsk, "--resume"});
      EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    }
    EXPECT_TRUE(folder_.Read("out.csv") == right);
  }
  // Nothing is left to run: the table is written again.
  fs::remove(folder_.Path("out.csv"));
  EXPECT_EQ(Run(input, "out.csv", {"--template", kAsk, "--resume"}).exit_code, 0);
  EXPECT_TRUE(folder_.Read("out.csv") == right);
  const ProgramResult other = Run(input, "out.csv", {"--template", "{{ country }}", "--resume"});
  EXPECT_EQ(other.exit_code, 73);
  EXPECT_NE(other.err.find("--template"), std::string::npos) << other.err;
}

TEST_F(RunTableTest, ShardsAddUpToTheWholeTable) {
  const std::string input = folder_.Write("in.csv", Many(11));
  ASSERT_EQ(Run(input, "right.csv").exit_code, 0);
  Table joined;
  for (const char* shard : {"1/3", "2/3", "3/3"}) {
    const ProgramResult run =
        Run(input, std::string("out-%s.csv"), {"--template", kAsk, "--shard", shard});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const Table part = Read(std::string("out-") + shard[0] + "-of-3.csv");
    ASSERT_FALSE(part.empty()) << shard;
    joined.insert(joined.end(), part.begin() + (joined.empty() ? 0 : 1), part.end());
  }
  EXPECT_EQ(joined, Read("right.csv"));
}

// The name of an output decides its format.
TEST_F(RunTableTest, NamesOfOtherFormatsAreRefused) {
  const std::string rows = folder_.Write("rows.jsonl", "{\"prompt\": \"Hi\"}\n");
  const struct {
    const char* name;
    const char* message;
  } cases[] = {{"out.jsonl.gz", "rows are not written compressed; leave out .gz"},
               {"out.csv.zst", "rows are not written compressed; leave out .zst"},
               {"out.csv", "without --template rows are written as JSON Lines"},
               {"out.tsv", "give --template TEXT, or a name that ends in .jsonl"}};
  for (const auto& [name, message] : cases) {
    const ProgramResult run = Run(rows, name, {});
    EXPECT_EQ(run.exit_code, 64) << name;
    EXPECT_NE(run.err.find(message), std::string::npos) << run.err;
    EXPECT_FALSE(fs::exists(folder_.Path(name)));
    EXPECT_EQ(Run(rows, "out.jsonl", {"--errors", folder_.Path(name)}).exit_code, 64) << name;
  }
  const std::string table = folder_.Write("in.csv", Many(1));
  EXPECT_EQ(Run(table, "out.jsonl.gz").exit_code, 64);
  EXPECT_EQ(Run(table, "out.jsonl.GZ").exit_code, 64);
  // The answer to one prompt may be of any form.
  EXPECT_EQ(RunProgram({"run", "-m", DemoModel(), "-q", "--no-stdin", "-n", "2", "-p", "a,b", "-o",
                        folder_.Path("text.csv")})
                .exit_code,
            0);
}

TEST_F(RunTableTest, NothingIsOverwrittenByAccident) {
  const std::string input = folder_.Write("in.csv", Many(2));
  folder_.Write("out.csv", "mine");
  EXPECT_EQ(Run(input, "out.csv").exit_code, 73);
  EXPECT_EQ(folder_.Read("out.csv"), "mine");
  EXPECT_FALSE(fs::exists(folder_.Path("out.csv.jsonl")));
  EXPECT_EQ(Run(input, "in.csv", {"--template", kAsk, "--force"}).exit_code, 73);
  EXPECT_EQ(folder_.Read("in.csv"), Many(2));
  EXPECT_EQ(
      Run(input, "new.csv", {"--template", kAsk, "--summary", folder_.Path("new.csv")}).exit_code,
      73);
  EXPECT_EQ(Run(input, "new.csv.gz").exit_code, 64);
  // A FIFO cannot be read again. (Opened for both, so that nobody waits.)
  ASSERT_EQ(mkfifo(folder_.Path("pipe.csv").c_str(), 0600), 0);
  const int both = open(folder_.Path("pipe.csv").c_str(), O_RDWR | O_CLOEXEC);
  const ProgramResult pipe = Run(folder_.Path("pipe.csv"), "new.csv");
  EXPECT_EQ(pipe.exit_code, 64);
  EXPECT_NE(pipe.err.find("a table as -o needs a regular file"), std::string::npos) << pipe.err;
  close(both);
  EXPECT_EQ(Run(input, "new.csv", {"--template", kAsk, "--unordered"}).exit_code, 64);
  EXPECT_FALSE(fs::exists(folder_.Path("new.csv")));
  EXPECT_EQ(Run(input, "out.csv", {"--template", kAsk, "--force"}).exit_code, 0);
  EXPECT_EQ(Read("out.csv").size(), 3u);
}

}  // namespace
}  // namespace minisgl::batch
