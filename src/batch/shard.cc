#include "batch/shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

// More shards than any input needs; small enough that products of two counts cannot overflow.
constexpr int64_t kShardsMax = 1'000'000;

Result<Shard> Checked(int64_t number, int64_t count, std::string_view source) {
  if (count < 1 || count > kShardsMax || number < 1 || number > count) {
    return UsageError("--shard: {} says shard {} of {}; shards count from 1 to at most {}", source,
                      number, count, kShardsMax);
  }
  return Shard{number, count};
}

// Reads numbers from a launcher's variables; nullopt if not set or empty.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::optional<int64_t> Find(const char* name) {
    const char* text = environment_(name);
    if (text == nullptr || *text == '\0') return std::nullopt;
    const std::optional<int64_t> value = ParseNumber<int64_t>(text);
    if ((!value || *value < 0 || *value > kShardsMax) && status_.ok()) {
      status_ = UsageError("--shard auto: {} is not a number from 0 to {} (found {})", name,
                           kShardsMax, Visible(text, 40));
    }
    return value;
  }
  const Status& status() const { return status_; }

 private:
  const Environment& environment_;
  Status status_;
};

// Rank, from 0, and size among the tasks started together.
struct Place {
  int64_t rank = 0, size = 1;
  std::string source;
};

Result<std::optional<Place>> PlaceAmongTasks(Variables* variables) {
  constexpr const char* kPairs[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                       {"PMI_RANK", "PMI_SIZE"},
                                       {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [rank_name, size_name] : kPairs) {
    const auto rank = variables->Find(rank_name), size = variables->Find(size_name);
    if (rank && size) return std::optional(Place{*rank, *size, rank_name});
  }
  // A batch script (without srun) has the variables of its first task, whatever runs in it.
  const auto tasks = variables->Find("SLURM_NTASKS");
  if (tasks.value_or(1) > 1) {
    return UsageError(
        "--shard auto: this Slurm job has {} tasks and srun did not start this one; write srun "
        "before minisgl",
        *tasks);
  }
  return std::optional<Place>();
}

std::optional<Place> PlaceInArray(Variables* variables) {
  const auto id = variables->Find("SLURM_ARRAY_TASK_ID");
  const auto count = variables->Find("SLURM_ARRAY_TASK_COUNT");
  if (!id || !count) return std::nullopt;
  const int64_t first = variables->Find("SLURM_ARRAY_TASK_MIN").value_or(0);
  const int64_t step = std::max<int64_t>(variables->Find("SLURM_ARRAY_TASK_STEP").value_or(1), 1);
  return Place{(*id - first) / step, *count, "SLURM_ARRAY_TASK_ID"};
}

Result<Shard> ShardOfEnvironment(std::optional<int64_t> count, const Environment& environment) {
  Variables variables(environment);
  MINISGL_ASSIGN_OR_RETURN(const std::optional<Place> task, PlaceAmongTasks(&variables));
  const std::optional<Place> array = PlaceInArray(&variables);
  const std::optional<int64_t> completion = variables.Find("JOB_COMPLETION_INDEX");
  MINISGL_RETURN_IF_ERROR(variables.status());
  if (!task && !array && completion) {
    if (!count) {
      return UsageError(
          "--shard auto: Kubernetes does not provide the count (JOB_COMPLETION_INDEX is {}); "
          "give auto/N",
          *completion);
    }
    return Checked(*completion + 1, *count, "JOB_COMPLETION_INDEX");
  }
  if (!task && !array) {
    return UsageError(
        "--shard auto: no variable of Slurm, MPI or a Kubernetes job is set; give I/N");
  }
  const Place outer = array.value_or(Place{}), inner = task.value_or(Place{});
  if (inner.rank >= inner.size || outer.rank >= outer.size) {
    return Checked(inner.rank >= inner.size ? inner.rank + 1 : outer.rank + 1,
                   inner.rank >= inner.size ? inner.size : outer.size,
                   inner.rank >= inner.size ? inner.source : outer.source);
  }
  const int64_t size = outer.size * inner.size;
  if (count && *count != size) {
    return UsageError("--shard auto/{}: {} implies {} shards", *count,
                      task ? inner.source : outer.source, size);
  }
  return Checked(outer.rank * inner.size + inner.rank + 1, size,
                 task ? inner.source : outer.source);
}

}  // namespace

Result<Shard> ParseShard(const std::string& text, const Environment& environment) {
  const size_t slash = text.find('/');
  const std::string_view left = std::string_view(text).substr(0, slash);
  std::optional<int64_t> count;
  if (slash != std::string::npos) {
    count = ParseNumber<int64_t>(std::string_view(text).substr(slash + 1));
    if (!count || *count < 1 || *count > kShardsMax) {
      return UsageError("--shard must be I/N, auto or auto/N with N from 1 to {} (found {})",
                        kShardsMax, Visible(text, 40));
    }
  }
  if (left == "auto") return ShardOfEnvironment(count, environment);
  const std::optional<int64_t> number = ParseNumber<int64_t>(left);
  if (!number || !count) {
    return UsageError("--shard must be I/N, auto or auto/N (found {})", Visible(text, 40));
  }
  return Checked(*number, *count, text);
}

RowRange RowsOfShard(const Shard& shard, int64_t num_rows) {
  // The first `longer` blocks have one more row.
  const int64_t length = num_rows / shard.count, longer = num_rows % shard.count;
  const int64_t before = shard.number - 1;
  const int64_t first = before * length + std::min(before, longer);
  return {first, first + length + (before < longer ? 1 : 0)};
}

std::string ShardName(const Shard& shard) {
  const std::string count = fmt::format("{}", shard.count);
  return fmt::format("{:0{}}-of-{}", shard.number, count.size(), count);
}

std::string WithShardName(std::string path, const Shard& shard) {
  const std::string name = ShardName(shard);
  for (size_t at = path.find("%s"); at != std::string::npos; at = path.find("%s", at)) {
    path.replace(at, 2, name);
    at += name.size();
  }
  return path;
}

}  // namespace minisgl::batch
