// OpenAI Batch rows: which rows are recognized, which fields each URL accepts, and the output
// lines. check_openai_types.py, run by hand, checks such lines against the service's own types.
#include "batch/openai_batch.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "batch/row.h"
#include "batch/row_output.h"
#include "batch/row_prompt.h"
#include "program/fakes.h"
#include "program/program.h"

namespace minisgl::batch {
namespace {

constexpr const char* kBatchMessages = R"("messages": [{"role": "user", "content": "a"}])";

std::string Batch(const std::string& url, const std::string& body) {
  return R"({"custom_id": "c", "method": "POST", "url": ")" + url + R"(", "body": {)" + body + "}}";
}
std::string Chat(const std::string& body = "") {
  return Batch("/v1/chat/completions", kBatchMessages + (body.empty() ? "" : ", " + body));
}
std::string Completion(const std::string& body = "") {
  return Batch("/v1/completions", R"("prompt": "a")" + (body.empty() ? "" : ", " + body));
}

ParsedRow ParseBatch(std::string_view text, bool lenient = false) {
  return ParseRow(text, 3, 7, lenient);
}

Row GoodRow(std::string_view text) {
  ParsedRow parsed = ParseBatch(text);
  EXPECT_FALSE(parsed.error) << text << ": " << (parsed.error ? parsed.error->message : "");
  return std::move(parsed.row);
}

Json ParseLine(const std::string& line) {
  EXPECT_TRUE(line.ends_with("\n"));
  Result<Json> json = ParseJson(line);
  EXPECT_TRUE(json.ok()) << line;
  return json.ok() ? *json : Json();
}

const Json& At(const Json& json, std::initializer_list<const char*> path) {
  static const Json missing("(missing)");
  const Json* at = &json;
  for (const char* key : path) {
    at = at->is_array() ? &at->as_array()[static_cast<size_t>(key[0] - '0')] : at->Find(key);
    if (at == nullptr) return missing;
  }
  return *at;
}

std::vector<std::string> Keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.as_object()) keys.push_back(key);
  return keys;
}

RowAnswer Answer(const std::string& text, const std::string& reason = "stop") {
  RowAnswer answer;
  answer.text = text;
  for (const char byte : text) answer.token_ids.push_back(static_cast<uint8_t>(byte));
  answer.finish_reason = reason;
  answer.usage = {10, 4, static_cast<int64_t>(text.size())};
  return answer;
}

Json Answered(const Row& row, const std::vector<RowAnswer>& answers) {
  return ParseLine(FormatAnswerRow(row, answers, ByteTokenizer()));
}

TEST(BatchRowTest, IsRecognisedByItsIdAndBody) {
  EXPECT_EQ(GoodRow(Chat()).format, RowFormat::kBatchChat);
  EXPECT_EQ(GoodRow(Completion()).format, RowFormat::kBatchCompletion);
  EXPECT_EQ(GoodRow(Chat()).id, Json("c"));
  EXPECT_EQ(GoodRow(R"({"custom_id": "c", "prompt": "a"})").format, RowFormat::kOwn);
  // Files of some services have no URL.
  EXPECT_EQ(GoodRow(R"({"custom_id": "c", "body": {"prompt": "a"}})").format,
            RowFormat::kBatchCompletion);
  EXPECT_EQ(GoodRow(std::string(R"({"custom_id": 5, "body": {)") + kBatchMessages + "}}").format,
            RowFormat::kBatchChat);
}

TEST(BatchRowTest, InvalidJsonIsRefusedInTheFormatOfItsRow) {
  for (const char* row :
       {R"({"custom_id": "c", "body": {"max_tokens": 1, "max_tokens": 2}})",
        R"({"custom_id": "c", "url": "/v1/chat/completions", "body": {"temperature": 1e999}})",
        R"({"custom_id": "c", "method": "POST", "body": NaN})",
        R"({"body": {"temperature": 1e999}, "custom_id": "c"})",
        R"({"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "\ud800"}})"}) {
    const ParsedRow parsed = ParseBatch(row);
    ASSERT_TRUE(parsed.error) << row;
    EXPECT_NE(parsed.row.format, RowFormat::kOwn) << row;
    const Json line = ParseLine(FormatErrorRow(parsed.row, *parsed.error));
    EXPECT_EQ(At(line, {"custom_id"}), Json("c"));
    EXPECT_EQ(At(line, {"response", "status_code"}), Json(400));
    EXPECT_EQ(At(line, {"response", "body", "error", "code"}), Json("invalid_row"));
  }
  EXPECT_EQ(ParseBatch(R"({"custom_id": "c", "prompt": "cut)").row.format, RowFormat::kOwn);
  EXPECT_EQ(ParseBatch(R"({"id": "c", "body": {"prompt": "cut)").row.format, RowFormat::kOwn);
}

TEST(BatchRowTest, TheFrameIsChecked) {
  const struct {
    const char* row;
    const char* field;
  } cases[] = {
      {R"({"custom_id": "c", "method": "GET", "url": "/v1/completions", "body": {"prompt": "a"}})",
       "method"},
      {R"({"custom_id": "c", "method": null, "body": {"prompt": "a"}})", "method"},
      {R"({"custom_id": "c", "url": "/v1/embeddings", "body": {"input": "a"}})", "url"},
      {R"({"custom_id": "c", "url": "v1/completions", "body": {"prompt": "a"}})", "url"},
      {R"({"custom_id": "c", "url": 5, "body": {"prompt": "a"}})", "url"},
      {R"({"custom_id": "c", "method": "POST", "url": "/v1/completions"})", "body"},
      {R"({"custom_id": "c", "body": "a"})", "body"},
      {R"({"custom_id": "c", "body": null})", "body"},
      {R"({"custom_id": "c", "body": {}})", "messages"},
      {R"({"custom_id": "c", "url": "/v1/completions", "body": {}})", "prompt"},
      {R"({"custom_id": "c", "body": {"messages": null}})", "messages"},
  };
  for (const auto& [row, field] : cases) {
    const ParsedRow parsed = ParseBatch(row);
    ASSERT_TRUE(parsed.error) << row;
    EXPECT_EQ(parsed.error->code, "invalid_row") << row;
    EXPECT_EQ(parsed.error->field, field) << row << ": " << parsed.error->message;
    EXPECT_NE(parsed.row.format, RowFormat::kOwn) << row;
    EXPECT_EQ(parsed.row.id, Json("c"));
  }
}

// Without an id, its answer could not be matched to it in Batch format.
TEST(BatchRowTest, WithoutAnIdItIsNotABatchRow) {
  for (const char* row : {R"({"body": {"prompt": "a"}})", R"({"id": 1, "body": {"prompt": "a"}})",
                          R"({"custom_id": null, "body": {"prompt": "a"}})",
                          R"({"custom_id": "", "body": {"prompt": "a"}})"}) {
    const ParsedRow parsed = ParseBatch(row);
    ASSERT_TRUE(parsed.error) << row;
    EXPECT_EQ(parsed.row.format, RowFormat::kOwn) << row;
  }
}

TEST(BatchRowTest, EachUrlHasItsFields) {
  const struct {
    std::string row;
    const char* field;
  } unknown[] = {
      {Chat(R"("prompt": "a")"), "prompt"},
      {Chat(R"("echo": true)"), "echo"},
      {Chat(R"("suffix": "")"), "suffix"},
      {Chat(R"("best_of": 1)"), "best_of"},
      {Chat(R"("id": "a")"), "id"},
      {Chat(R"("sampling_params": {})"), "sampling_params"},
      {Chat(R"("input_ids": [1])"), "input_ids"},
      {Completion(kBatchMessages), "messages"},
      {Completion(R"("tools": [])"), "tools"},
      {Completion(R"("top_logprobs": 2)"), "top_logprobs"},
      {Completion(R"("text": "a")"), "text"},
      {Completion(R"("custom_id": "a")"), "custom_id"},
      {R"({"custom_id": "c", "id": "d", "body": {"prompt": "a"}})", "id"},
      {R"({"custom_id": "c", "temperature": 1, "body": {"prompt": "a"}})", "temperature"},
  };
  for (const auto& [row, field] : unknown) {
    const ParsedRow parsed = ParseBatch(row);
    ASSERT_TRUE(parsed.error) << row;
    EXPECT_EQ(parsed.error->code, "unsupported_field") << row;
    EXPECT_EQ(parsed.error->field, field) << row;
    const ParsedRow lenient = ParseBatch(row, true);
    EXPECT_FALSE(lenient.error) << row;
    EXPECT_EQ(lenient.row.warnings.size(), 1u) << row;
  }
  EXPECT_EQ(ParseBatch(Chat(R"("logprobs": 5)")).error->field, "logprobs");
  EXPECT_EQ(ParseBatch(Completion(R"("logprobs": true)")).error->field, "logprobs");
  EXPECT_EQ(GoodRow(Chat(R"("logprobs": true, "top_logprobs": 5)")).num_logprobs, 5);
  EXPECT_EQ(GoodRow(Completion(R"("logprobs": 5)")).num_logprobs, 5);
}

TEST(BatchRowTest, HarmlessFieldsAreAccepted) {
  GoodRow(Chat(R"("model": "m", "user": "u", "store": true, "metadata": {"a": "b"},)"
               R"("stream": false, "stream_options": null, "service_tier": "flex",)"
               R"("parallel_tool_calls": false, "safety_identifier": "s", "prompt_cache_key": "k",)"
               R"("prompt_cache_retention": "24h", "prompt_cache_options": {"ttl": "30m"},)"
               R"("prediction": {"type": "content", "content": "x"}, "modalities": ["text"],)"
               R"("verbosity": "medium", "response_format": {"type": "text"}, "audio": null,)"
               R"("functions": null, "function_call": null, "web_search_options": null,)"
               R"("moderation": null, "tools": null, "logit_bias": null, "n": 1, "stop": null)"));
  GoodRow(Completion(R"("model": "m", "user": "u", "echo": false, "suffix": "", "best_of": 1,)"
                     R"("stream": false, "logprobs": null, "seed": 5)"));
}

TEST(BatchAnswerTest, AChatCompletionEqualsTheServices) {
  const Row row = GoodRow(Chat(R"("model": "the model")"));
  const Json line = Answered(row, {Answer("Hello")});
  EXPECT_EQ(Keys(line), (std::vector<std::string>{"id", "custom_id", "response", "error"}));
  EXPECT_TRUE(At(line, {"id"}).as_string().starts_with("batch_req_"));
  EXPECT_EQ(At(line, {"custom_id"}), Json("c"));
  EXPECT_TRUE(At(line, {"error"}).is_null());
  EXPECT_EQ(At(line, {"response", "status_code"}), Json(200));
  EXPECT_TRUE(At(line, {"response", "request_id"}).as_string().starts_with("req_"));
  Json body = At(line, {"response", "body"});
  EXPECT_TRUE(At(body, {"id"}).as_string().starts_with("chatcmpl-"));
  body.Set("id", "x");
  EXPECT_EQ(body.Dump(),
            R"({"id": "x", "object": "chat.completion", "created": 0, "model": "the model", )"
            R"("choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello", )"
            R"("refusal": null}, "logprobs": null, "finish_reason": "stop"}], "usage": )"
            R"({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, )"
            R"("prompt_tokens_details": {"cached_tokens": 4}}, "system_fingerprint": null})");
}

TEST(BatchAnswerTest, ATextCompletionEqualsTheServices) {
  const Row row = GoodRow(Completion(R"("n": 2)"));
  Json body = At(Answered(row, {Answer("one"), Answer("two", "length")}), {"response", "body"});
  EXPECT_TRUE(At(body, {"id"}).as_string().starts_with("cmpl-"));
  body.Set("id", "x");
  EXPECT_EQ(
      body.Dump(),
      R"({"id": "x", "object": "text_completion", "created": 0, "model": "", )"
      R"("choices": [{"index": 0, "text": "one", "logprobs": null, "finish_reason": "stop"}, )"
      R"({"index": 1, "text": "two", "logprobs": null, "finish_reason": "length"}], "usage": )"
      R"({"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16, )"
      R"("prompt_tokens_details": {"cached_tokens": 4}}, "system_fingerprint": null})");
}

TEST(BatchAnswerTest, LogprobsHaveTheShapeOfTheirUrl) {
  RowAnswer answer = Answer("h\xC3\xA9");
  for (const TokenId id : {TokenId{'h'}, TokenId{0xC3}, TokenId{0xA9}, ByteTokenizer::kEos}) {
    answer.logprobs.push_back({id, -0.5f, {{id, -0.5f}, {'x', -1.5f}}});
  }
  const Json chat = At(Answered(GoodRow(Chat(R"("logprobs": true, "top_logprobs": 2)")), {answer}),
                       {"response", "body", "choices", "0", "logprobs"});
  EXPECT_EQ(Keys(chat), (std::vector<std::string>{"content", "refusal"}));
  EXPECT_EQ(At(chat, {"content", "0", "token"}), Json("h"));
  EXPECT_EQ(At(chat, {"content", "0", "bytes", "0"}), Json(0x68));
  EXPECT_EQ(At(chat, {"content", "0", "top_logprobs", "1", "token"}), Json("x"));
  const Json text = At(Answered(GoodRow(Completion(R"("logprobs": 2)")), {answer}),
                       {"response", "body", "choices", "0", "logprobs"});
  EXPECT_EQ(text.Dump(), R"({"tokens": ["h", "bytes:\\xc3", "bytes:\\xa9", "</s>"], )"
                         R"("token_logprobs": [-0.5, -0.5, -0.5, -0.5], "top_logprobs": )"
                         R"([{"h": -0.5, "x": -1.5}, {"bytes:\\xc3": -0.5, "x": -1.5}, )"
                         R"({"bytes:\\xa9": -0.5, "x": -1.5}, {"</s>": -0.5, "x": -1.5}], )"
                         R"("text_offset": [0, 1, 2, 2]})");
  for (TokenLogprobs& token : answer.logprobs) token.top.clear();
  EXPECT_TRUE(At(Answered(GoodRow(Completion(R"("logprobs": 0)")), {answer}),
                 {"response", "body", "choices", "0", "logprobs", "top_logprobs"})
                  .is_null());
}

TEST(BatchAnswerTest, FieldsUnknownToTheServiceAreBesideTheBody) {
  Row row = GoodRow(Chat(R"("return_token_ids": true, "metadata": {"k": "v"}, "timeout_s": 1)"));
  row.warnings.push_back("the warning");
  const Json body = At(Answered(row, {Answer("ab", "timeout")}), {"response", "body"});
  EXPECT_EQ(At(body, {"choices", "0", "finish_reason"}), Json("length"));
  EXPECT_EQ(At(body, {"choices", "0", "token_ids"}).Dump(), "[97, 98]");
  EXPECT_EQ(At(body, {"metadata"}).Dump(), R"({"k": "v"})");
  EXPECT_EQ(At(body, {"warnings"}).as_array().size(), 2u);
  EXPECT_EQ(At(body, {"warnings", "0"}), Json("the warning"));
}

TEST(BatchAnswerTest, ReasoningIsSeparate) {
  for (const std::string& text : {Chat(), Chat(R"("n": 1)")}) {
    Row row = GoodRow(text);
    row.reasoning = {"<think>", "</think>"};
    std::vector<RowAnswer> answers = {Answer("<think>\nwhy\n</think>\n\nso")};
    answers[0].parts = PartsOfText(row.reasoning, answers[0].text);
    const Json message =
        At(Answered(row, answers), {"response", "body", "choices", "0", "message"});
    EXPECT_EQ(message.Dump(),
              R"({"role": "assistant", "content": "so", "refusal": null, "reasoning": "why"})");
    row.hide_reasoning = true;
    EXPECT_EQ(At(Answered(row, answers), {"response", "body", "choices", "0", "message"}).Dump(),
              R"({"role": "assistant", "content": "so", "refusal": null})");
  }
}

TEST(BatchAnswerTest, IdsDependOnlyOnTheRow) {
  const auto id = [](const std::string& text, int64_t index) {
    ParsedRow parsed = ParseRow(text, index, 1);
    return At(Answered(parsed.row, {Answer("a")}), {"id"}).as_string();
  };
  EXPECT_EQ(id(Chat(), 3), id(Chat(R"("seed": 4)"), 3));
  EXPECT_NE(id(Chat(), 3), id(Chat(), 4));
  EXPECT_NE(id(R"({"custom_id": "1", "body": {"prompt": "a"}})", 3),
            id(R"({"custom_id": 1, "body": {"prompt": "a"}})", 3));
}

TEST(BatchErrorTest, ErrorsOfTheRowAreInTheResponse) {
  const struct {
    const char* code;
    int status_code;
    const char* type;
  } cases[] = {{"invalid_row", 400, "invalid_request_error"},
               {"invalid_grammar", 400, "invalid_request_error"},
               {"unsupported_field", 400, "invalid_request_error"},
               {"duplicate_id", 400, "invalid_request_error"},
               {"length_exceeded", 400, "invalid_request_error"},
               {"template_error", 400, "invalid_request_error"},
               {"timeout", 408, "timeout_error"}};
  for (const auto& [code, status_code, type] : cases) {
    Row row = GoodRow(Chat());
    const Json line = ParseLine(FormatErrorRow(row, {code, "what is wrong", "temperature"}));
    EXPECT_EQ(Keys(line), (std::vector<std::string>{"id", "custom_id", "response", "error"}));
    EXPECT_TRUE(At(line, {"error"}).is_null()) << code;
    EXPECT_EQ(At(line, {"response", "status_code"}), Json(status_code));
    const Json error = At(line, {"response", "body", "error"});
    EXPECT_EQ(error.Dump(), std::string(R"({"message": "what is wrong", "type": ")") + type +
                                R"(", "param": "temperature", "code": ")" + code +
                                R"(", "line": 7})");
  }
}

TEST(BatchErrorTest, ErrorsOfTheProgramAreBesideTheResponseToo) {
  for (const char* code : {"nan_logits", "device_fault", "internal", "cancelled"}) {
    const Json line = ParseLine(FormatErrorRow(GoodRow(Completion()), {code, "what", ""}));
    EXPECT_GE(At(line, {"response", "status_code"}).as_int(), 500) << code;
    EXPECT_TRUE(At(line, {"response", "body", "error", "param"}).is_null());
    EXPECT_EQ(At(line, {"error"}).Dump(),
              std::string(R"({"code": ")") + code + R"(", "message": "what"})");
  }
}

TEST(BatchErrorTest, ABadRowIsAnsweredInItsFormat) {
  const ParsedRow parsed = ParseBatch(Chat(R"("temperature": "hot")"));
  ASSERT_TRUE(parsed.error);
  const Json line = ParseLine(FormatErrorRow(parsed.row, *parsed.error));
  EXPECT_EQ(At(line, {"custom_id"}), Json("c"));
  EXPECT_EQ(At(line, {"response", "body", "error", "param"}), Json("temperature"));
}

TEST(BatchProgramTest, AFileWrittenForTheServiceRunsUnchanged) {
  if (ProgramBinary().empty()) GTEST_SKIP() << "MINISGL_BINARY names no program";
  const auto line = [](const std::string& id, const std::string& url, const std::string& body) {
    return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": ")" + url +
           R"(", "body": {"model": "gpt-4o-mini", )" + body + "}}\n";
  };
  const std::string say = R"("messages": [{"role": "user", "content": "What is 2 + 3?"}])";
  const TemporaryFolder folder;
  const std::string input = folder.Write(
      "in.jsonl",
      line("a", "/v1/chat/completions", say + R"(, "max_tokens": 5)") +
          line("b", "/v1/chat/completions", say + R"(, "stop_regex": "a")") +
          line("c", "/v1/completions", R"("prompt": "Once", "temperature": 1, "max_tokens": 5)"));
  const auto run = [&] {
    return RunProgram(
        {"run", "-m", DemoModel(), "--num-pages", "64", "--threads", "1", "--file", input});
  };
  const ProgramResult first = run();
  EXPECT_EQ(first.exit_code, 1) << first.err;
  const std::vector<std::string> lines = Lines(first.out);
  ASSERT_EQ(lines.size(), 3u);
  const Json chat = ParseLine(lines[0] + "\n"), refused = ParseLine(lines[1] + "\n"),
             text = ParseLine(lines[2] + "\n");
  EXPECT_EQ(At(chat, {"custom_id"}), Json("a"));
  EXPECT_EQ(At(chat, {"response", "body", "model"}), Json("gpt-4o-mini"));
  EXPECT_TRUE(At(chat, {"response", "body", "choices", "0", "message", "content"})
                  .as_string()
                  .starts_with("2 + 3"));
  EXPECT_EQ(At(refused, {"response", "body", "error", "param"}), Json("stop_regex"));
  EXPECT_EQ(At(text, {"response", "body", "object"}), Json("text_completion"));
  EXPECT_EQ(run().out, first.out) << "a second run gives the same bytes";
}

}  // namespace
}  // namespace minisgl::batch
