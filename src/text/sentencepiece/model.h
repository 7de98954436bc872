// A sentencepiece model as plain data: read from tokenizer.model by a bounded reader, and written
// again for the library, which so never sees a byte that was not checked here.
//
// The packaged library (0.1.97) trusts its input in places: normalisation tables are walked without
// bounds, nested unknown groups recurse, results of prefix searches are read past their array.
// Read() refuses all of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "text/piece.h"

namespace minisgl::text {

inline constexpr size_t kPiecesMax = 1'000'000;

enum class PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct SentencePiece {
  std::string text;
  float score = 0.0f;
  PieceType type = PieceType::kNormal;
};

struct SentencePieceModel {
  enum class Kind { kUnigram = 1, kBpe = 2 };

  std::vector<SentencePiece> pieces;
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  std::string unk_surface = " \xE2\x81\x87 ";
  int32_t bos_id = 1, eos_id = 2, pad_id = -1;  // as trained; may name no control piece
  std::string charsmap;                         // normalisation table, empty for the identity
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  // What the file's bytes hold; every rule that the library relies on is checked.
  static Result<SentencePieceModel> Read(std::string_view bytes);
  // The bytes of a model file with exactly the above.
  std::string Write() const;
};

// The byte that a byte piece "<0xNN>" stands for, or -1 where `text` is none.
int BytePieceValue(std::string_view text);

}  // namespace minisgl::text
