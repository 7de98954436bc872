#include "batch/grammar_texts.h"

#include <algorithm>
#include <utility>

#include "minisgl/grammar/grammar_digest.h"

namespace minisgl::batch {
namespace {

constexpr size_t kResultsMax = 100'000;
constexpr size_t kCleanedSizeMin = 64;

}  // namespace

std::shared_ptr<const GrammarText> GrammarTexts::Share(std::shared_ptr<const GrammarText> text) {
  const Sha256::Digest digest = DigestOf(*text);
  const std::lock_guard lock(mutex_);
  if (texts_.size() >= 2 * std::max(cleaned_size_, kCleanedSizeMin)) {
    std::erase_if(texts_, [](const auto& entry) { return entry.second.expired(); });
    cleaned_size_ = texts_.size();
  }
  std::weak_ptr<const GrammarText>& entry = texts_[digest];
  if (std::shared_ptr<const GrammarText> shared = entry.lock()) return shared;
  entry = text;
  return text;
}

std::optional<RowError> GrammarCheck::Check(const Row& row, const std::vector<Prompt>& prompts,
                                            std::vector<std::string>* warnings) {
  return CheckText(row, prompts.front().grammar, warnings);
}

std::optional<RowError> GrammarCheck::CheckOwn(const Row& row) {
  return row.grammar ? CheckText(row, row.grammar->text, nullptr) : std::nullopt;
}

std::optional<RowError> GrammarCheck::CheckText(const Row& row,
                                                const std::shared_ptr<const GrammarText>& text,
                                                std::vector<std::string>* warnings) {
  if (text == nullptr) return std::nullopt;
  if (text != last_) {
    if (errors_.size() >= kResultsMax) errors_.clear();
    const auto [entry, is_new] = errors_.try_emplace(DigestOf(*text));
    if (is_new) {
      const auto compiled = CompileGrammar(*text);
      if (!compiled.ok()) {
        entry->second = compiled.status().message();
      } else if (warnings != nullptr) {
        *warnings = (*compiled)->warnings();
      }
    }
    last_ = text;
    last_error_ = entry->second;
  }
  if (last_error_.empty()) return std::nullopt;
  return InvalidGrammar(row, last_error_);
}

RowError InvalidGrammar(const Row& row, std::string message) {
  return {"invalid_grammar", std::move(message), row.grammar_field};
}

}  // namespace minisgl::batch
