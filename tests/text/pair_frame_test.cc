// What tokenizers add around two texts: each kind of post-processor, and what no model wants.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "minisgl/base/json.h"
#include "minisgl/text/tokenizer.h"
#include "text_test_util.h"

namespace minisgl {
namespace {

// [CLS] is 5, [SEP] is 6. `processor`: the JSON of "post_processor".
std::unique_ptr<Tokenizer> WithProcessor(const std::string& processor) {
  const ModelDir dir;
  dir.Write("tokenizer.json", R"({
      "added_tokens": [{"id": 5, "content": "[CLS]", "special": true},
                       {"id": 6, "content": "[SEP]", "special": true}],
      "pre_tokenizer": null, "decoder": {"type": "Fuse"},
      "model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "b": 1}},
      "post_processor": )" + processor +
                                  "}");
  return LoadTokenizer(dir.path());
}

// Elements "A:0", "B:1" and "[SEP]:1" of a template, separated by spaces.
std::string PairTemplate(const std::string& elements) {
  std::string list;
  for (size_t at = 0; at < elements.size();) {
    const size_t end = std::min(elements.find(' ', at), elements.size());
    const std::string name = elements.substr(at, end - at - 2);
    list += (list.empty() ? "" : ", ") + std::string("{\"") +
            (name.size() == 1 ? "Sequence" : "SpecialToken") + R"(": {"id": ")" + name +
            R"(", "type_id": )" + elements[end - 1] + "}}";
    at = end + 1;
  }
  return R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
             "special_tokens": {"[CLS]": {"ids": [5]}, "[SEP]": {"ids": [6]}}, "pair": [)" +
         list + "]}";
}

using PairIds = std::vector<TokenId>;

TEST(PairFrameTest, EachKindOfProcessorIsRead) {
  const struct {
    std::string processor;
    PairIds before, between, after;
    std::optional<size_t> types_from;
  } cases[] = {
      {R"({"type": "BertProcessing", "cls": ["[CLS]", 5], "sep": ["[SEP]", 6]})", {5}, {6}, {6}, 1},
      {R"({"type": "RobertaProcessing", "cls": ["[CLS]", 5], "sep": ["[SEP]", 6]})",
       {5},
       {6, 6},
       {6},
       {}},
      {PairTemplate("[CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1"), {5}, {6}, {6}, 1},
      {PairTemplate("[CLS]:0 A:0 [SEP]:0 [SEP]:1 B:1 [SEP]:1"), {5}, {6, 6}, {6}, 1},
      {PairTemplate("A:0 B:0"), {}, {}, {}, {}},
      {R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" +
           PairTemplate("[CLS]:0 A:0 B:1") + "]}",
       {5},
       {},
       {},
       0},
  };
  for (const auto& one : cases) {
    const auto tokenizer = WithProcessor(one.processor);
    ASSERT_NE(tokenizer, nullptr) << one.processor;
    const PairFrame* const pair = tokenizer->Pair();
    ASSERT_NE(pair, nullptr) << one.processor;
    EXPECT_EQ(pair->before, one.before) << one.processor;
    EXPECT_EQ(pair->between, one.between) << one.processor;
    EXPECT_EQ(pair->after, one.after) << one.processor;
    EXPECT_EQ(pair->types_from, one.types_from) << one.processor;
  }
}

// A model that reads single texts runs all the same.
TEST(PairFrameTest, WhatNoModelWantsIsNoPair) {
  for (const std::string& processor :
       {std::string("null"), std::string(R"({"type": "ByteLevel"})"),
        PairTemplate("[CLS]:0 B:0 [SEP]:0 A:1"), PairTemplate("[CLS]:0 A:0 [SEP]:0"),
        PairTemplate("[CLS]:0 A:1 B:1"), PairTemplate("A:0 B:1 [SEP]:0"),
        PairTemplate("A:0 B:0 [SEP]:1"), PairTemplate("A:0 A:0 B:1"),
        PairTemplate("A:0 [NONE]:0 B:1"), PairTemplate("A:0 B:2"),
        R"({"type": "Sequence", "processors": [)" + PairTemplate("A:0 [SEP]:0 B:0") + ", " +
            PairTemplate("[CLS]:0 A:0 B:0") + "]}"}) {
    const auto tokenizer = WithProcessor(processor);
    ASSERT_NE(tokenizer, nullptr) << processor;
    EXPECT_EQ(tokenizer->Pair(), nullptr) << processor;
  }
}

}  // namespace
}  // namespace minisgl
