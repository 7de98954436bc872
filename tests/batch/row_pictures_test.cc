// Rows with pictures on their way to prompts: what prompts bring for them, and what fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/row_preparer.h"
#include "batch/row_prompt.h"
#include "batch/row_template.h"
#include "batch/session_rows.h"
#include "load/model_loader.h"
#include "minisgl/base/base64.h"
#include "temporary_folder.h"
#include "text/image_test_util.h"

namespace minisgl::batch {
namespace {

constexpr TokenId kPad = 258;  // of SmallQwen

EngineLimits PictureRowLimits(int32_t max_seq_len = 512) {
  EngineLimits limits;
  limits.vocab_size = 259;
  limits.num_pages = 1000;
  limits.max_running_requests = 4;
  limits.max_seq_len = max_seq_len;
  limits.max_step_tokens = 64;
  return limits;
}

std::string Golden(const std::string& name) {
  return ReadBytes(MINISGL_SOURCE_DIR "/tests/vision/golden/pictures/" + name);
}

// Builds the prompts of rows whose pictures are in a folder.
class RowPicturesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("a.png", Golden("png_2_8.png"));
    folder_.Write("b.png", Golden("png_0_8.png"));
    folder_.Write("cut.png", Golden("png_2_8.png").substr(0, 60));
  }

  std::optional<RowError> Build(const std::string& row, std::vector<Prompt>* prompts,
                                PromptBuilderOptions options = {}) {
    options.image_folder = folder_.Path("");
    const PromptBuilder builder(&text_, limits_, std::move(options));
    ParsedRow parsed = ParseRow(row, 0, 1);
    if (parsed.error) return parsed.error;
    return builder.Build(&parsed.row, prompts);
  }
  std::vector<Prompt> Prompts(const std::string& row, const PromptBuilderOptions& options = {}) {
    std::vector<Prompt> prompts;
    const auto error = Build(row, &prompts, options);
    EXPECT_FALSE(error) << row << ": " << error->message;
    return prompts;
  }
  RowError ErrorOf(const std::string& row, const PromptBuilderOptions& options = {}) {
    std::vector<Prompt> prompts;
    const auto error = Build(row, &prompts, options);
    EXPECT_TRUE(error) << row;
    return error.value_or(RowError());
  }

  TemporaryFolder folder_;
  TextModel text_ = SmallQwen();
  EngineLimits limits_ = PictureRowLimits();
};

// A row whose only message has the parts "ab", the picture and "c".
std::string Showing(const std::string& path, const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "ab"}, )"
         R"({"type": "image_url", "image_url": {"url": "file:)" +
         path + R"("}}, {"type": "text", "text": "c"}]}])" + more + "}";
}

int64_t CountOf(const Prompt& prompt, TokenId id) {
  return std::count(prompt.ids.begin(), prompt.ids.end(), id);
}

TEST_F(RowPicturesTest, EachAnswersPromptBringsThePicture) {
  const std::vector<Prompt> prompts = Prompts(Showing("a.png", R"(, "n": 3)"));
  ASSERT_EQ(prompts.size(), 3U);
  const Prompt& first = prompts[0];
  ASSERT_NE(first.extras, nullptr);
  ASSERT_EQ(first.extras->inputs.size(), 1U);
  EXPECT_EQ(first.extras->inputs[0].token, 7);  // behind "user:ab"
  EXPECT_EQ(first.extras->inputs[0].num_embeddings, CountOf(first, kPad));
  ASSERT_EQ(first.marks.size(), 1U);
  EXPECT_EQ(first.marks[0].place, 7);
  EXPECT_EQ(first.marks[0].hash, first.extras->inputs[0].hash);
  for (const Prompt& prompt : prompts) {
    EXPECT_EQ(prompt.extras, first.extras);
    EXPECT_EQ(prompt.marks, first.marks);
    EXPECT_EQ(prompt.ids, first.ids);
  }
  EXPECT_GT(WeightOfPictures(prompts), 0U);
  const std::vector<Prompt> other = Prompts(Showing("b.png"));
  EXPECT_NE(other[0].marks[0].hash, first.marks[0].hash);
  const std::vector<Prompt> plain = Prompts(R"({"messages": [{"role": "user", "content": "ab"}]})");
  EXPECT_EQ(plain[0].extras, nullptr);
  EXPECT_TRUE(plain[0].marks.empty());
  EXPECT_EQ(WeightOfPictures(plain), 0U);
}

TEST_F(RowPicturesTest, APictureOfManyRowsIsPreparedOnce) {
  PromptBuilderOptions options;
  options.image_folder = folder_.Path("");
  const PromptBuilder builder(&text_, limits_, options);
  const auto content_of = [&](const std::string& row) {
    ParsedRow parsed = ParseRow(row, 0, 1);
    std::vector<Prompt> prompts;
    EXPECT_FALSE(builder.Build(&parsed.row, &prompts)) << row;
    return prompts.at(0).extras->inputs.at(0).content;
  };
  const auto first = content_of(Showing("a.png"));
  EXPECT_EQ(content_of(Showing(folder_.Path("a.png"))), first);
  EXPECT_EQ(
      content_of(R"({"messages": [{"role": "user", "content": [{"type": "image", "base64": ")" +
                 EncodeBase64(Golden("png_2_8.png")) + "\"}]}]}"),
      first);
  EXPECT_NE(content_of(Showing("b.png")), first);
}

TEST_F(RowPicturesTest, APictureIsCountedWithoutBeingDecoded) {
  PromptBuilderOptions counts;
  counts.counts_only = true;
  const std::vector<Prompt> whole = Prompts(Showing("a.png"));
  const std::vector<Prompt> counted = Prompts(Showing("a.png"), counts);
  EXPECT_EQ(counted[0].ids, whole[0].ids);
  EXPECT_EQ(counted[0].extras, nullptr);
  // Its pixels are cut off, and its head is whole.
  EXPECT_EQ(Prompts(Showing("cut.png"), counts)[0].ids, whole[0].ids);
  const RowError error = ErrorOf(Showing("cut.png"));
  EXPECT_EQ(error.code, "bad_image");
  EXPECT_EQ(error.field, "messages");
  EXPECT_NE(error.message.find("/cut.png: "), std::string::npos) << error.message;
}

TEST_F(RowPicturesTest, APictureThatCannotBeReadIsBad) {
  const RowError error = ErrorOf(Showing("none.png"));
  EXPECT_EQ(error.code, "bad_image");
  EXPECT_EQ(error.field, "messages[0].content[1]");
  EXPECT_NE(error.message.find("none.png: cannot be opened"), std::string::npos);
  PromptBuilderOptions options;
  options.images.root = folder_.Path("");
  EXPECT_EQ(ErrorOf(Showing("../a.png"), options).code, "bad_image");
  EXPECT_FALSE(Prompts(Showing("a.png"), options).empty());
}

TEST_F(RowPicturesTest, AModelWithoutPicturesRefusesThemUnread) {
  text_.images.reset();
  text_.images_status = Status(StatusCode::kUnavailable, "pictures of x are not read");
  const RowError error = ErrorOf(Showing("none.png"));
  EXPECT_EQ(error.code, "unsupported_field");
  EXPECT_EQ(error.message, "pictures of x are not read");
  EXPECT_EQ(error.field, "messages[0].content[1]");
}

TEST_F(RowPicturesTest, APromptWithPicturesIsNotCut) {
  const auto length = static_cast<int32_t>(Prompts(Showing("a.png"))[0].ids.size());
  PromptBuilderOptions cuts;
  cuts.truncate_left = true;
  limits_ = PictureRowLimits(length + 1);
  EXPECT_EQ(std::ssize(Prompts(Showing("a.png"), cuts)[0].ids), length);
  limits_ = PictureRowLimits(length);
  const RowError error = ErrorOf(Showing("a.png"), cuts);
  EXPECT_EQ(error.code, "length_exceeded");
  EXPECT_NE(error.message.find("a prompt with pictures is not cut"), std::string::npos)
      << error.message;
  EXPECT_NE(ErrorOf(Showing("a.png")).message.find("--image-max-tokens"), std::string::npos);
}

TEST_F(RowPicturesTest, TurnsKeepThePicturesBeforeThem) {
  PromptBuilderOptions options;
  options.image_folder = folder_.Path("");
  const PromptBuilder builder(&text_, limits_, options);
  ParsedRow parsed =
      ParseRow(R"({"answer_all_turns": true, "messages": [{"role": "user", "content": )"
               R"([{"type": "image", "image": "a.png"}]}, {"role": "user", "content": "b"}, )"
               R"({"role": "user", "content": [{"type": "image", "image": "b.png"}, )"
               R"({"type": "image", "image": "a.png"}]}]})",
               0, 1);
  ASSERT_FALSE(parsed.error) << parsed.error->message;
  SaidSoFar said(&text_);
  std::vector<std::vector<KeyMark>> marks;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Prompt> prompts;
    const auto error = builder.Build(&parsed.row, &prompts, nullptr, &said);
    ASSERT_FALSE(error) << turn << ": " << error->message;
    marks.push_back(prompts[0].marks);
    said.AddAnswer("d", {}, {'d'}, true);
    ++parsed.row.turn;
  }
  ASSERT_EQ(marks[0].size(), 1U);
  EXPECT_EQ(marks[1], marks[0]);
  ASSERT_EQ(marks[2].size(), 3U);
  EXPECT_EQ(marks[2][0], marks[0][0]);
  EXPECT_NE(marks[2][1].hash, marks[0][0].hash);
  EXPECT_EQ(marks[2][2].hash, marks[0][0].hash);
}

TEST_F(RowPicturesTest, RowsOfASessionKeepThem) {
  PromptBuilderOptions options;
  options.image_folder = folder_.Path("");
  options.counts_only = true;
  const PromptBuilder builder(&text_, limits_, options);
  UnaskedRows unasked(&builder);
  std::vector<int64_t> counts;
  for (const char* content :
       {R"([{"type": "image", "image": "a.png"}])", R"("b")",
        R"([{"type": "text", "text": "c"}, {"type": "image", "image": "a.png"}])"}) {
    ParsedRow parsed =
        ParseRow(std::string(R"({"session": "s", "messages": [{"role": "user", "content": )") +
                     content + "}]}",
                 std::ssize(counts), std::ssize(counts) + 1);
    std::vector<Prompt> prompts;
    const auto error = unasked.Build(&parsed, &prompts);
    ASSERT_FALSE(error) << error->message;
    counts.push_back(CountOf(prompts[0], kPad));
  }
  EXPECT_GT(counts[0], 0);
  EXPECT_EQ(counts[1], counts[0]);
  EXPECT_EQ(counts[2], 2 * counts[0]);
}

TEST_F(RowPicturesTest, LowDetailTakesFewTokens) {
  folder_.Write("large.png", PngHead(280, 280));
  PromptBuilderOptions counts;
  counts.counts_only = true;
  const auto row = [](const std::string& detail) {
    return R"({"messages": [{"role": "user", "content": [{"type": "input_image", )"
           R"("image_url": "large.png", "detail": ")" +
           detail + "\"}]}]}";
  };
  EXPECT_EQ(CountOf(Prompts(row("high"), counts)[0], kPad), 100);
  EXPECT_EQ(CountOf(Prompts(row("low"), counts)[0], kPad), 64);
  counts.images.tokens_max = 9;
  EXPECT_EQ(CountOf(Prompts(row("auto"), counts)[0], kPad), 9);
}

TEST_F(RowPicturesTest, AColumnNamesThePictureOfARow) {
  TemplateOptions options;
  options.prompt = "What is {{ name }}?";
  options.image_column = "photo";
  const auto made = RowTemplate::Make(options, "Be brief.", RowTemplate::Use::kQuestion);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const std::string table =
      "id,photo,name\n1,a.png,it\n2,,it\n3,http://x/a.png,it\n4,none.png,it\n";
  auto reader = LineReader::Open(folder_.Write("table.csv", table));
  ASSERT_TRUE(reader.ok());
  reader->ReadTable(',');
  std::vector<std::string> codes;
  std::string line;
  PromptBuilderOptions builder_options;
  builder_options.image_folder = folder_.Path("");
  const PromptBuilder builder(&text_, limits_, builder_options);
  while (reader->Next(0, &line) == LineReader::Outcome::kLine) {
    ParsedRow parsed = (*made)->MakeRow(line, *reader, {"id", "photo", "name"}, 0);
    std::vector<Prompt> prompts;
    if (!parsed.error) parsed.error = builder.Build(&parsed.row, &prompts);
    codes.push_back(parsed.error ? parsed.error->code + ": " + parsed.error->field : "");
    if (!parsed.error) {
      EXPECT_EQ(prompts[0].marks.size(), 1U);
    }
  }
  EXPECT_EQ(codes, (std::vector<std::string>{"", "invalid_row: photo", "bad_image: photo",
                                             "bad_image: photo"}));
}

TEST_F(RowPicturesTest, PreparedRowsWeighAsTheirPictures) {
  PromptBuilderOptions options;
  options.image_folder = folder_.Path("");
  const PromptBuilder builder(&text_, limits_, options);
  RowPreparer preparer(&builder);
  for (int64_t index = 0; index < 3; ++index) {
    ReadyRow ready;
    ready.row = ParseRow(Showing("a.png"), index, index + 1).row;
    ready.bytes = 100;
    preparer.Add(std::move(ready));
  }
  EXPECT_EQ(preparer.bytes(), 300U);
  for (int taken = 0; taken < 3;) {
    auto prepared = preparer.Take(std::chrono::milliseconds(1000));
    if (!prepared) continue;
    ++taken;
    EXPECT_FALSE(prepared->error);
    EXPECT_TRUE(prepared->ready.row.images.empty());
    EXPECT_GT(prepared->ready.bytes, 100U);
  }
  EXPECT_TRUE(preparer.empty());
}

// The rows of the tiny multimodal models beside the project become the reference's ids.
TEST(SharedPictureRowsTest, IdsAreTheReferences) {
  if (!HasShared("models/vision")) GTEST_SKIP() << "no shared models";
  for (const char* name : {"gemma3", "gemma4", "llava", "llava_onevision", "pixtral", "qwen2_5_vl",
                           "qwen2_vl", "smolvlm"}) {
    const std::string dir = SharedDir() + "/models/vision/" + name;
    load::ModelOptions model;
    model.model = dir;
    const auto text = load::LoadTextModel(model);
    ASSERT_TRUE(text.ok()) << text.status().message();
    ASSERT_TRUE(text->images) << name << ": " << text->images_status.message();
    EngineLimits limits = PictureRowLimits(8192);
    limits.vocab_size = text->tokenizer->vocab_size();
    PromptBuilderOptions options;
    options.image_folder = dir;
    const PromptBuilder builder(&*text, limits, options);
    const std::vector<Json> answers = ReadRows(dir + "/answers.jsonl");
    std::ifstream rows(dir + "/prompts.jsonl");
    size_t row_index = 0;
    for (std::string line; std::getline(rows, line); ++row_index) {
      ParsedRow parsed = ParseRow(line, static_cast<int64_t>(row_index), 1);
      ASSERT_FALSE(parsed.error) << parsed.error->message;
      std::vector<Prompt> prompts;
      const auto error = builder.Build(&parsed.row, &prompts);
      ASSERT_FALSE(error) << name << ": " << error->message;
      Json::Array ids;
      for (const TokenId id : prompts[0].ids) ids.emplace_back(int64_t{id});
      EXPECT_EQ(Json(std::move(ids)), *answers[row_index].Find("prompt_token_ids"))
          << name << " row " << row_index;
      EXPECT_EQ(prompts[0].marks.size(), prompts[0].extras ? prompts[0].extras->inputs.size() : 0);
    }
    EXPECT_EQ(row_index, 10U);
  }
}

}  // namespace
}  // namespace minisgl::batch
