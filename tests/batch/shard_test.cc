// Rows of a shard, and the shard from a launcher's variables.
#include "batch/shard.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace minisgl::batch {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Shard> ParseShardText(const std::string& text, const Variables& variables = {}) {
  return ParseShard(text, [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string Place(const std::string& text, const Variables& variables = {}) {
  const Result<Shard> shard = ParseShardText(text, variables);
  if (!shard.ok()) return shard.status().message();
  return std::to_string(shard->number) + "/" + std::to_string(shard->count);
}

TEST(ShardTest, BlocksCoverEveryRowOnceInOrder) {
  for (const int64_t rows : {0, 1, 7, 8, 9, 100}) {
    for (const int64_t count : {1, 2, 3, 8, 11}) {
      int64_t next = 0;
      for (int64_t number = 1; number <= count; ++number) {
        const RowRange range = RowsOfShard({number, count}, rows);
        EXPECT_EQ(range.first, next);
        EXPECT_GE(range.end - range.first, rows / count);
        EXPECT_LE(range.end - range.first, rows / count + 1);
        next = range.end;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

TEST(ShardTest, NumbersCountFromOne) {
  EXPECT_EQ(Place("1/4"), "1/4");
  EXPECT_EQ(Place("4/4"), "4/4");
  for (const char* text : {"0/4", "5/4", "1/0", "-1/4", "1", "/", "1/", "/4", "a/4", "1/4x", "",
                           "1/99999999999999999999", "automatic", "auto/0"}) {
    EXPECT_EQ(ParseShardText(text).status().code(), StatusCode::kUsage) << text;
  }
}

TEST(ShardTest, AutoFollowsTheLauncher) {
  const Variables srun = {
      {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(Place("auto", srun), "1/4");
  EXPECT_EQ(Place("auto/4", srun), "1/4");
  EXPECT_EQ(Place("auto", {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}}), "3/3");
  EXPECT_EQ(Place("auto", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "2/2");
  EXPECT_EQ(Place("auto/5", {{"JOB_COMPLETION_INDEX", "4"}}), "5/5");
  // Tasks 10, 13 and 16 of an array, with two ranks each.
  const Variables array = {{"SLURM_ARRAY_TASK_ID", "13"},
                           {"SLURM_ARRAY_TASK_MIN", "10"},
                           {"SLURM_ARRAY_TASK_STEP", "3"},
                           {"SLURM_ARRAY_TASK_COUNT", "3"},
                           {"SLURM_NTASKS", "1"}};
  EXPECT_EQ(Place("auto", array), "2/3");
  Variables both = array;
  both["PMI_RANK"] = "1";
  both["PMI_SIZE"] = "2";
  EXPECT_EQ(Place("auto", both), "4/6");
}

TEST(ShardTest, AmbiguousAutoIsRefused) {
  const auto refuses = [](const std::string& text, const Variables& variables,
                          const std::string& expected) {
    EXPECT_EQ(ParseShardText(text, variables).status().code(), StatusCode::kUsage) << text;
    EXPECT_NE(Place(text, variables).find(expected), std::string::npos) << Place(text, variables);
  };
  refuses("auto", {}, "no variable");
  // A batch script has the variables of the first task, whichever runs.
  refuses("auto", {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, "srun");
  refuses("auto", {{"JOB_COMPLETION_INDEX", "4"}}, "auto/N");
  refuses("auto/4", {{"JOB_COMPLETION_INDEX", "4"}}, "shard 5 of 4");
  refuses("auto/3", {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "implies 2 shards");
  refuses("auto", {{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}, "PMI_RANK says shard 3 of 2");
  refuses("auto", {{"SLURM_ARRAY_TASK_ID", "3"}, {"SLURM_ARRAY_TASK_COUNT", "3"}},
          "SLURM_ARRAY_TASK_ID says shard 4 of 3");
  refuses("auto", {{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}, "PMI_RANK is not a number");
  refuses("auto", {{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}, "PMI_RANK is not a number");
}

TEST(ShardTest, NamesSortAsNumbersDo) {
  EXPECT_EQ(WithShardName("out-%s.jsonl", {3, 16}), "out-03-of-16.jsonl");
  EXPECT_EQ(WithShardName("%s/%s", {1, 1}), "1-of-1/1-of-1");
  EXPECT_EQ(WithShardName("out.jsonl", {3, 16}), "out.jsonl");
}

}  // namespace
}  // namespace minisgl::batch
