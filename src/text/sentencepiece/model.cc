// Protocol-buffer reader and writer for sentencepiece models, and the checks of a whole model.
//
// The reader makes one pass without recursion: the message nests two deep. Groups, overlong
// varints, lengths past the end and known fields of another wire type are errors; unknown fields
// are ignored.
#include "text/sentencepiece/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "minisgl/base/utf8.h"
#include "text/sentencepiece/charsmap.h"

namespace minisgl::text {
namespace {

enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint64_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;      // for varints and fixed-width fields
  std::string_view bytes;  // for kBytes
};

// Reads the fields of one message in order.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  bool done() const { return rest_.empty(); }

  // Reads the next field. REQUIRES: !done().
  Result<Field> Next() {
    Field field;
    uint64_t tag = 0;
    if (!ReadVarint(&tag))
      return BadInput("not a sentencepiece model (the tag of a field is truncated or too long)");
    field.number = tag >> 3;
    if (field.number == 0 || field.number >= (uint64_t{1} << 29)) {
      return BadInput("not a sentencepiece model (field number {})", field.number);
    }
    switch (tag & 7) {
      case 0:
        field.wire = Wire::kVarint;
        if (!ReadVarint(&field.value)) return Cut(field.number);
        return field;
      case 1:
        field.wire = Wire::kFixed64;
        if (!ReadFixed(8, &field.value)) return Cut(field.number);
        return field;
      case 2: {
        field.wire = Wire::kBytes;
        uint64_t length = 0;
        if (!ReadVarint(&length) || length > rest_.size()) return Cut(field.number);
        field.bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
        return field;
      }
      case 5:
        field.wire = Wire::kFixed32;
        if (!ReadFixed(4, &field.value)) return Cut(field.number);
        return field;
      default:
        return BadInput("not a sentencepiece model (field {} has wire type {})", field.number,
                        tag & 7);
    }
  }

 private:
  static Status Cut(uint64_t number) {
    return BadInput("damaged sentencepiece model (field {} is truncated or too long)", number);
  }
  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int i = 0; i < 10; ++i) {
      if (rest_.empty()) return false;
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      if (i == 9 && byte > 1) return false;
      *value |= uint64_t{byte & 0x7Fu} << (7 * i);
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool ReadFixed(size_t width, uint64_t* value) {
    if (rest_.size() < width) return false;
    *value = 0;
    for (size_t i = 0; i < width; ++i) {
      *value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
    }
    rest_.remove_prefix(width);
    return true;
  }

  std::string_view rest_;
};

Status WrongWire(const char* message, uint64_t number) {
  return BadInput("damaged sentencepiece model (field {} of {} has the wrong type)", number,
                  message);
}

Result<SentencePiece> ReadPiece(std::string_view bytes) {
  SentencePiece piece;
  FieldReader reader(bytes);
  while (!reader.done()) {
    MINISGL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number == 1) {
      if (field.wire != Wire::kBytes) return WrongWire("a piece", 1);
      if (field.bytes.size() > kPieceBytesMax) {
        return BadInput("a piece of {} bytes; at most {} are supported", field.bytes.size(),
                        kPieceBytesMax);
      }
      piece.text = field.bytes;
    } else if (field.number == 2) {
      if (field.wire != Wire::kFixed32) return WrongWire("a piece", 2);
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    } else if (field.number == 3) {
      if (field.wire != Wire::kVarint) return WrongWire("a piece", 3);
      if (field.value < 1 || field.value > 6)
        return BadInput("a piece of unknown type {}", field.value);
      piece.type = static_cast<PieceType>(field.value);
    }
  }
  return piece;
}

Status ReadTrainerSpec(std::string_view bytes, SentencePieceModel* model) {
  FieldReader reader(bytes);
  while (!reader.done()) {
    MINISGL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    const bool is_number = field.number == 3 || field.number == 24 || field.number == 35 ||
                           (field.number >= 41 && field.number <= 43);
    if (is_number && field.wire != Wire::kVarint) return WrongWire("trainer_spec", field.number);
    const auto id = static_cast<int32_t>(static_cast<uint32_t>(field.value));
    switch (field.number) {
      case 3:
        if (field.value != 1 && field.value != 2) {
          return BadInput("model type {}; only unigram (1) and BPE (2) are supported", field.value);
        }
        model->kind = static_cast<SentencePieceModel::Kind>(field.value);
        break;
      case 24:
        if (field.value != 0) return BadInput("treat_whitespace_as_suffix is not supported");
        break;
      case 35:
        model->byte_fallback = field.value != 0;
        break;
      case 41:
        model->bos_id = id;
        break;
      case 42:
        model->eos_id = id;
        break;
      case 43:
        model->pad_id = id;
        break;
      case 44:
        if (field.wire != Wire::kBytes) return WrongWire("trainer_spec", 44);
        if (field.bytes.size() > kPieceBytesMax || !IsValidUtf8(field.bytes)) {
          return BadInput("unk_surface is too long or not UTF-8");
        }
        model->unk_surface = field.bytes;
        break;
      default:
        break;
    }
  }
  return {};
}

Status ReadNormalizerSpec(std::string_view bytes, SentencePieceModel* model) {
  FieldReader reader(bytes);
  while (!reader.done()) {
    MINISGL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number == 2) {
      if (field.wire != Wire::kBytes) return WrongWire("normalizer_spec", 2);
      model->charsmap = field.bytes;
    }
    if (field.number >= 3 && field.number <= 5 && field.wire != Wire::kVarint) {
      return WrongWire("normalizer_spec", field.number);
    }
    if (field.number == 3) model->add_dummy_prefix = field.value != 0;
    if (field.number == 4) model->remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) model->escape_whitespaces = field.value != 0;
  }
  return {};
}

// Accepts a denormaliser only if it does nothing.
Status CheckDenormalizerSpec(std::string_view bytes) {
  FieldReader reader(bytes);
  while (!reader.done()) {
    MINISGL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number == 2 && !field.bytes.empty())
      return BadInput("a denormalizer is not supported");
  }
  return {};
}

Status CheckPiece(const SentencePiece& piece, const SentencePieceModel& model) {
  if (piece.text.empty()) return BadInput("an empty piece");
  if (!std::isfinite(piece.score)) return BadInput("a score that is not finite");
  if (!IsValidUtf8(piece.text)) return BadInput("\"{}\" is not UTF-8", Visible(piece.text));
  // The library passes pieces to its tries as C strings.
  const bool in_trie = piece.type == PieceType::kUserDefined ||
                       (model.kind == SentencePieceModel::Kind::kUnigram &&
                        (piece.type == PieceType::kNormal || piece.type == PieceType::kUnused));
  if (in_trie && piece.text.find('\0') != std::string::npos) {
    return BadInput("\"{}\" holds a zero byte", Visible(piece.text));
  }
  if (piece.type == PieceType::kByte) {
    if (!model.byte_fallback) return BadInput("a byte piece, but byte_fallback is off");
    if (BytePieceValue(piece.text) < 0) {
      return BadInput("byte piece \"{}\" is not <0xNN>", Visible(piece.text));
    }
  }
  return {};
}

// Returns the maximum number of symbols that are prefixes of one symbol (including itself).
size_t LongestPrefixChain(std::vector<std::string_view> symbols) {
  std::sort(symbols.begin(), symbols.end());
  std::vector<std::string_view> chain;
  size_t longest = 0;
  for (std::string_view symbol : symbols) {
    while (!chain.empty() && !symbol.starts_with(chain.back())) chain.pop_back();
    chain.push_back(symbol);
    longest = std::max(longest, chain.size());
  }
  return longest;
}

Status CheckPieces(const SentencePieceModel& model) {
  if (model.pieces.empty()) return BadInput("the model has no pieces");
  std::unordered_set<std::string_view> normal, reserved;
  std::vector<std::string_view> symbols;
  int num_unknown = 0, num_bytes = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    Status status = CheckPiece(piece, model);
    if (!status.ok()) return status.WithPrefix(fmt::format("piece {}", id));
    const bool is_reserved = piece.type == PieceType::kUnknown ||
                             piece.type == PieceType::kControl || piece.type == PieceType::kByte;
    if (!(is_reserved ? reserved : normal).insert(piece.text).second) {
      return BadInput("piece {}: \"{}\" occurs twice", id, Visible(piece.text));
    }
    if (piece.type == PieceType::kUserDefined) symbols.push_back(piece.text);
    num_unknown += piece.type == PieceType::kUnknown;
    num_bytes += piece.type == PieceType::kByte;
  }
  if (num_unknown != 1) return BadInput("{} pieces are <unk>; exactly one must be", num_unknown);
  // Every byte must have a piece.
  bool found[256] = {};
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == PieceType::kByte) found[BytePieceValue(piece.text)] = true;
  }
  if (model.byte_fallback && (num_bytes != 256 || std::count(found, found + 256, true) != 256)) {
    return BadInput("byte_fallback needs 256 byte pieces, one for each byte (found {})", num_bytes);
  }
  if (LongestPrefixChain(std::move(symbols)) > 64) {
    return BadInput("more than 64 user-defined symbols are prefixes of one another");
  }
  return {};
}

void WriteVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

void WriteNumber(int field, uint64_t value, std::string* out) {
  WriteVarint(static_cast<uint64_t>(field) << 3, out);
  WriteVarint(value, out);
}

void WriteBytes(int field, std::string_view bytes, std::string* out) {
  WriteVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  WriteVarint(bytes.size(), out);
  out->append(bytes);
}

void WriteFloat(int field, float value, std::string* out) {
  WriteVarint(static_cast<uint64_t>(field) << 3 | 5, out);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(bits >> shift));
}

}  // namespace

int BytePieceValue(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (char c : text.substr(3, 2)) {
    int digit = 0;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else {
      return -1;
    }
    value = value * 16 + digit;
  }
  return value;
}

Result<SentencePieceModel> SentencePieceModel::Read(std::string_view bytes) {
  SentencePieceModel model;
  FieldReader reader(bytes);
  while (!reader.done()) {
    MINISGL_ASSIGN_OR_RETURN(const Field field, reader.Next());
    if (field.number <= 5 && field.wire != Wire::kBytes)
      return WrongWire("the model", field.number);
    switch (field.number) {
      case 1: {
        if (model.pieces.size() == kPiecesMax) return BadInput("more than {} pieces", kPiecesMax);
        Result<SentencePiece> piece = ReadPiece(field.bytes);
        if (!piece.ok())
          return piece.status().WithPrefix(fmt::format("piece {}", model.pieces.size()));
        model.pieces.push_back(std::move(*piece));
        break;
      }
      case 2:
        MINISGL_RETURN_IF_ERROR(ReadTrainerSpec(field.bytes, &model));
        break;
      case 3:
        MINISGL_RETURN_IF_ERROR(ReadNormalizerSpec(field.bytes, &model));
        break;
      case 5:
        MINISGL_RETURN_IF_ERROR(CheckDenormalizerSpec(field.bytes));
        break;
      default:
        break;  // self-test samples and extensions are not used
    }
  }
  MINISGL_RETURN_IF_ERROR(CheckPieces(model));
  if (!model.charsmap.empty()) MINISGL_RETURN_IF_ERROR(CheckCharsmap(model.charsmap));
  return model;
}

std::string SentencePieceModel::Write() const {
  std::string out, message;
  for (const SentencePiece& piece : pieces) {
    message.clear();
    WriteBytes(1, piece.text, &message);
    WriteFloat(2, piece.score, &message);
    WriteNumber(3, static_cast<uint64_t>(piece.type), &message);
    WriteBytes(1, message, &out);
  }
  message.clear();
  WriteNumber(3, static_cast<uint64_t>(kind), &message);
  WriteNumber(35, byte_fallback ? 1 : 0, &message);
  WriteBytes(2, message, &out);
  message.clear();
  WriteBytes(2, charsmap, &message);
  WriteNumber(3, add_dummy_prefix ? 1 : 0, &message);
  WriteNumber(4, remove_extra_whitespaces ? 1 : 0, &message);
  WriteNumber(5, escape_whitespaces ? 1 : 0, &message);
  WriteBytes(3, message, &out);
  return out;
}

}  // namespace minisgl::text
