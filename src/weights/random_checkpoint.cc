// Writes one period of random numbers to an anonymous file and maps it as often as the largest
// tensor needs.
#include "weights/random_checkpoint.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "minisgl/base/checked_math.h"
#include "minisgl/base/random.h"
#include "minisgl/base/utf8.h"

namespace minisgl::weights {
namespace {

constexpr uint64_t kPeriodBytes = uint64_t{64} << 20;
// Far past any model, and small enough that rounding up to pages does not wrap.
constexpr uint64_t kBufferBytesMax = uint64_t{1} << 46;

// Standard deviation 0.02, as models are initialised: with D inputs of size 1 an output is about
// 0.02 sqrt(D), near 1 for D = 1,024 ... 8,192.
constexpr float kMatrixSpread = 0.0346f;  // 0.02 sqrt(3)
constexpr float kNormSpread = 0.1f;

Status SystemError(const char* what) {
  return MakeStatus(StatusCode::kOutOfMemory, "no memory for made-up weights ({}: {})", what,
                    std::strerror(errno));
}

struct FileDescriptor {
  int fd = -1;
  ~FileDescriptor() {
    if (fd >= 0) close(fd);
  }
};

// Eight numbers of 16 bits from each draw, scaled to [-1, 1).
void Fill(DType dtype, float center, float spread, uint64_t seed, uint64_t num_bytes,
          std::byte* out) {
  constexpr uint64_t kPerDraw = 8;
  const uint64_t bytes = DTypeBytes(dtype), count = num_bytes / bytes;
  for (uint64_t i = 0; i < count; i += kPerDraw) {
    const RandomBits bits = PhiloxBits(seed, i / kPerDraw);
    for (uint64_t j = i; j < std::min(i + kPerDraw, count); ++j) {
      const uint32_t half = bits.word[(j - i) / 2] >> (j % 2 == 0 ? 0 : 16) & 0xFFFFu;
      const float value = center + spread * ((static_cast<float>(half) - 32768.0f) / 32768.0f);
      const uint16_t narrow = dtype == DType::kBF16 ? FloatToBf16(value) : FloatToF16(value);
      std::memcpy(out + j * bytes,
                  dtype == DType::kF32 ? static_cast<const void*>(&value) : &narrow, bytes);
    }
  }
}

std::optional<uint64_t> BytesOf(const RandomTensor& tensor, DType dtype) {
  std::vector<uint64_t> factors = {DTypeBytes(dtype)};
  for (const int64_t size : tensor.shape) {
    if (size < 0) return std::nullopt;
    factors.push_back(static_cast<uint64_t>(size));
  }
  const auto bytes = CheckedProduct(factors);
  return bytes && *bytes <= kBufferBytesMax ? bytes : std::nullopt;
}

// [D, 2 D] with ones where an output is its own input.
std::shared_ptr<const std::byte> MakeFirstInputs(const RandomTensor& tensor, DType dtype) {
  const auto width = static_cast<size_t>(tensor.shape[0]), bytes = size_t{DTypeBytes(dtype)};
  auto memory = std::make_shared<std::vector<std::byte>>(2 * width * width * bytes);
  for (size_t i = 0; i < width; ++i) {
    Fill(dtype, 1, 0, 0, bytes, memory->data() + (2 * width * i + i) * bytes);
  }
  return {memory, memory->data()};
}

}  // namespace

Result<std::shared_ptr<const std::byte>> MakeRandomMemory(uint64_t num_bytes, DType dtype,
                                                          float center, float spread,
                                                          uint64_t seed) {
  if (num_bytes > kBufferBytesMax) return BadInput("made-up weights of {} bytes", num_bytes);
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t total = CeilDiv(std::max<uint64_t>(num_bytes, 1), page) * page;
  const uint64_t period = std::min(total, kPeriodBytes);
  const FileDescriptor file{memfd_create("minisgl-random", MFD_CLOEXEC)};
  if (file.fd < 0) return SystemError("memfd_create");
  if (ftruncate(file.fd, static_cast<off_t>(period)) != 0) return SystemError("ftruncate");
  void* writable = mmap(nullptr, period, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
  if (writable == MAP_FAILED) return SystemError("mmap");
  Fill(dtype, center, spread, seed, period, static_cast<std::byte*>(writable));
  munmap(writable, period);

  void* base = mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return SystemError("mmap");
  std::shared_ptr<const std::byte> memory(static_cast<const std::byte*>(base),
                                          [base, total](const std::byte*) { munmap(base, total); });
  for (uint64_t at = 0; at < total; at += period) {
    void* wanted = static_cast<std::byte*>(base) + at;
    if (mmap(wanted, std::min(period, total - at), PROT_READ, MAP_SHARED | MAP_FIXED, file.fd, 0) ==
        MAP_FAILED) {
      return SystemError("mmap");
    }
  }
  return memory;
}

Result<std::unique_ptr<Checkpoint>> MakeRandomCheckpoint(const std::vector<RandomTensor>& tensors,
                                                         DType dtype, uint64_t seed) {
  std::map<RandomValues, uint64_t> largest;
  for (const RandomTensor& tensor : tensors) {
    const auto bytes = BytesOf(tensor, dtype);
    if (!bytes) {
      return BadInput("tensor \"{}\" of shape {} is too large to make up", Visible(tensor.name),
                      ShapeToString(tensor.shape));
    }
    uint64_t& most = largest[tensor.values];
    most = std::max(most, *bytes);
  }
  using Memory = std::map<RandomValues, std::shared_ptr<const std::byte>>;
  auto memory = std::make_shared<Memory>();
  for (const auto& [values, bytes] : largest) {
    if (values == RandomValues::kFirstInputs) continue;
    const bool is_near_one = values == RandomValues::kNearOne;
    const float center = is_near_one || values == RandomValues::kOnes ? 1.0f : 0.0f;
    const float spread = is_near_one                         ? kNormSpread
                         : values == RandomValues::kNearZero ? kMatrixSpread
                                                             : 0.0f;
    MINISGL_ASSIGN_OR_RETURN(
        (*memory)[values],
        MakeRandomMemory(bytes, dtype, center, spread, is_near_one ? DeriveSeed(seed, 1) : seed));
  }
  std::map<std::string, TensorView> views;
  for (const RandomTensor& tensor : tensors) {
    std::shared_ptr<const std::byte>& own = (*memory)[tensor.values];
    if (own == nullptr) own = MakeFirstInputs(tensor, dtype);
    views[tensor.name] = TensorView{own.get(), dtype, tensor.shape};
  }
  return Checkpoint::FromViews(std::move(views), std::move(memory), "made-up weights");
}

}  // namespace minisgl::weights
