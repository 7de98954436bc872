// Reads the kinds of post-processor of tokenizer.json.
#include "text/tokenizer_json/post_processor.h"

#include <utility>

#include "minisgl/base/utf8.h"
#include "text/tokenizer_json/vocabulary.h"

namespace minisgl::text {
namespace {

constexpr size_t kElementsMax = 256;  // elements of a template, ids of a token

class PostProcessorReader {
 public:
  explicit PostProcessorReader(const std::function<bool(int64_t)>& has_id) : has_id_(has_id) {}

  Status Read(const JsonPlace& place, int depth, Surroundings* around) const {
    if (!place.json().is_object()) return place.MustBe("an object");
    MINISGL_ASSIGN_OR_RETURN(const std::string type, place["type"].String());
    if (type == "ByteLevel") return {};  // changes only the offsets of words
    if (type == "TemplateProcessing") return ReadTemplate(place, around);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      Surroundings added;
      MINISGL_RETURN_IF_ERROR(ReadPair(place["cls"], &added.prefix));
      MINISGL_RETURN_IF_ERROR(ReadPair(place["sep"], &added.suffix));
      PairFrame pair = {added.prefix, added.suffix, added.suffix, std::nullopt};
      if (type == "BertProcessing") pair.types_from = pair.between.size();
      if (type == "RobertaProcessing") {
        pair.between.insert(pair.between.end(), added.suffix.begin(), added.suffix.end());
      }
      added.pair = std::make_shared<PairFrame>(std::move(pair));
      Add(added, around);
      return {};
    }
    if (type != "Sequence") {
      return place["type"].Error(
          "is \"{}\"; supported are TemplateProcessing, ByteLevel, BertProcessing, "
          "RobertaProcessing and Sequence",
          Visible(type));
    }
    MINISGL_ASSIGN_OR_RETURN(const auto elements, place.Steps("processors", depth));
    for (const JsonPlace& element : elements) {
      MINISGL_RETURN_IF_ERROR(Read(element, depth + 1, around));
    }
    if (around->prefix.size() > kElementsMax || around->suffix.size() > kElementsMax) {
      return place.Error("adds more than {} tokens before or after a text", kElementsMax);
    }
    return {};
  }

 private:
  static Result<std::vector<JsonPlace>> Few(const JsonPlace& place) {
    MINISGL_ASSIGN_OR_RETURN(std::vector<JsonPlace> elements, place.Elements());
    if (elements.size() > kElementsMax) {
      return place.Error("has {} elements; at most {} are supported", elements.size(),
                         kElementsMax);
    }
    return elements;
  }

  // Adds the ids of a later step, which enclose the ids of earlier steps.
  static void Add(const Surroundings& outer, Surroundings* around) {
    around->prefix.insert(around->prefix.begin(), outer.prefix.begin(), outer.prefix.end());
    around->suffix.insert(around->suffix.end(), outer.suffix.begin(), outer.suffix.end());
    const bool is_first = around->num_steps++ == 0;
    around->pair = is_first ? outer.pair : nullptr;
  }

  Status ReadId(const JsonPlace& place, std::vector<TokenId>* ids) const {
    MINISGL_ASSIGN_OR_RETURN(const int64_t id, place.Int(0, kVocabularyIdsMax - 1));
    if (!has_id_(id)) return place.Error("is {}; the vocabulary has no such id", id);
    ids->push_back(static_cast<TokenId>(id));
    return {};
  }

  // ["</s>", 2]
  Status ReadPair(const JsonPlace& place, std::vector<TokenId>* ids) const {
    MINISGL_ASSIGN_OR_RETURN(const std::vector<JsonPlace> pair, place.Elements());
    if (pair.size() != 2) return place.Error("has {} elements; it must have 2", pair.size());
    return ReadId(pair[1], ids);
  }

  Status ReadTemplate(const JsonPlace& place, Surroundings* around) const {
    MINISGL_ASSIGN_OR_RETURN(const auto pieces, Few(place["single"]));
    Surroundings added;
    bool past_text = false;
    for (const JsonPlace& piece : pieces) {
      const JsonPlace token = piece["SpecialToken"], sequence = piece["Sequence"];
      if (!sequence.is_null()) {
        MINISGL_ASSIGN_OR_RETURN(const std::string id, sequence["id"].String());
        if (id != "A" || past_text) return sequence.Error("is not the single text \"A\"");
        past_text = true;
        continue;
      }
      MINISGL_ASSIGN_OR_RETURN(const std::string name, token["id"].String());
      const JsonPlace special = place["special_tokens"][name];
      if (special.is_null()) {
        return token.Error("is \"{}\", which is not in {}.special_tokens", Visible(name),
                           place.path());
      }
      MINISGL_ASSIGN_OR_RETURN(const auto ids, Few(special["ids"]));
      for (const JsonPlace& id : ids) {
        MINISGL_RETURN_IF_ERROR(ReadId(id, past_text ? &added.suffix : &added.prefix));
      }
    }
    if (!past_text) return place["single"].Error("has no place for the text");
    added.pair = ReadTwo(place);
    Add(added, around);
    return {};
  }

  // An element of a template: a text, or the ids of a token.
  struct Element {
    std::string text;  // "A" or "B"; "": ids
    std::vector<TokenId> ids;
    int64_t type = 0;
  };
  Result<Element> ReadElement(const JsonPlace& place, const JsonPlace& piece) const {
    Element element;
    const JsonPlace token = piece["SpecialToken"], sequence = piece["Sequence"];
    const JsonPlace& read = sequence.is_null() ? token : sequence;
    MINISGL_ASSIGN_OR_RETURN(element.type, read["type_id"].Int(0, 1));
    MINISGL_ASSIGN_OR_RETURN(const std::string name, read["id"].String());
    if (!sequence.is_null()) {
      element.text = name;
      return element;
    }
    MINISGL_ASSIGN_OR_RETURN(const auto ids, Few(place["special_tokens"][name]["ids"]));
    for (const JsonPlace& id : ids) MINISGL_RETURN_IF_ERROR(ReadId(id, &element.ids));
    return element;
  }

  // What a template adds to two texts. Most models never see two: what is not understood is null.
  std::shared_ptr<const PairFrame> ReadTwo(const JsonPlace& place) const {
    const auto pieces = Few(place["pair"]);
    if (!pieces.ok()) return nullptr;
    PairFrame pair;
    std::vector<TokenId>* at = &pair.before;
    int64_t type = 0;
    for (const JsonPlace& piece : *pieces) {
      const Result<Element> element = ReadElement(place, piece);
      if (!element.ok() || element->type < type) return nullptr;
      if (element->type > std::exchange(type, element->type)) {
        if (at != &pair.between) return nullptr;
        pair.types_from = pair.between.size();
      }
      if (element->text.empty()) {
        at->insert(at->end(), element->ids.begin(), element->ids.end());
      } else if (element->text == "A" && at == &pair.before) {
        at = &pair.between;
      } else if (element->text == "B" && at == &pair.between) {
        at = &pair.after;
      } else {
        return nullptr;
      }
    }
    if (at != &pair.after) return nullptr;
    return std::make_shared<PairFrame>(std::move(pair));
  }

  const std::function<bool(int64_t)>& has_id_;
};

}  // namespace

Result<Surroundings> ReadPostProcessor(const JsonPlace& place,
                                       const std::function<bool(int64_t)>& has_id) {
  Surroundings around;
  if (place.is_null()) return around;
  MINISGL_RETURN_IF_ERROR(PostProcessorReader(has_id).Read(place, 0, &around));
  return around;
}

}  // namespace minisgl::text
