// NUMA nodes read from made-up machines, and a thread that is kept on processors.
#include "minisgl/base/numa_nodes.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "base/system_info_roots.h"
#include "base/thread_affinity.h"
#include "system_tree.h"

namespace minisgl {
namespace {

class NumaNodesTest : public SystemTreeTest {
 protected:
  void WriteNodes(const std::string& file, const std::string& list) {
    Write("/sys/devices/system/node/" + file, list + "\n");
  }
  void WriteNode(int number, const std::string& cpus) {
    WriteNodes("node" + std::to_string(number) + "/cpulist", cpus);
  }
  // "number:cpus" of each node, with a minus before nodes without memory.
  std::string Nodes(const std::vector<int>& cpus) {
    const auto nodes = base::NumaNodesUnder(root_, cpus);
    if (!nodes.ok()) return nodes.status().message();
    std::string text;
    for (const NumaNode& node : *nodes) {
      text += std::string(text.empty() ? "" : " ") + (node.has_memory ? "" : "-") +
              std::to_string(node.number) + ":";
      for (const int cpu : node.cpus) text += std::to_string(cpu) + ",";
    }
    return text;
  }
  std::string Folder() const { return root_ + "/sys/devices/system/node/"; }
};

TEST_F(NumaNodesTest, ASystemWithoutNodesHasNone) { EXPECT_EQ(Nodes({0, 1}), ""); }

TEST_F(NumaNodesTest, NodesHaveTheProcessorsThatMayBeUsed) {
  WriteNodes("online", "0-1");
  WriteNode(0, "0-3,8-11");
  WriteNode(1, "4-7,12-15");
  EXPECT_EQ(Nodes({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}),
            "0:0,1,2,3,8,9,10,11, 1:4,5,6,7,12,13,14,15,");
  EXPECT_EQ(Nodes({1, 9, 15}), "0:1,9, 1:15,");
  EXPECT_EQ(Nodes({5, 6}), "1:5,6,");
}

TEST_F(NumaNodesTest, NumbersMayHaveHolesAndNodesNoProcessors) {
  WriteNodes("online", "0,3,5");
  WriteNode(0, "0-1");
  WriteNode(3, "");  // memory alone
  WriteNode(5, "6,7");
  EXPECT_EQ(Nodes({0, 1, 6, 7}), "0:0,1, 5:6,7,");
}

TEST_F(NumaNodesTest, NodesWithoutMemoryAreMarked) {
  WriteNodes("online", "0-2");
  WriteNodes("has_memory", "0,2");
  for (const int node : {0, 1, 2}) WriteNode(node, std::to_string(node));
  EXPECT_EQ(Nodes({0, 1, 2}), "0:0, -1:1, 2:2,");
  // Memory that a group may not use counts as none.
  Write("/proc/self/status", "Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t0-1\nmore:\t1\n");
  EXPECT_EQ(Nodes({0, 1, 2}), "0:0, -1:1, -2:2,");
}

TEST_F(NumaNodesTest, ListsThatMakeNoSenseAreErrors) {
  const auto is_no_list = [&](const std::string& file, const std::string& found) {
    return Folder() + file + " is no list of numbers (found " + found + ")";
  };
  for (const char* const list :
       {"0-", "1-0", "0,,1", "0,", "-1", "0-1x", "1,0", "0,0", "0-9999999", "99999999999", "a"}) {
    WriteNodes("online", list);
    EXPECT_EQ(Nodes({0}), is_no_list("online", list));
  }
  WriteNodes("online", "0-1");
  WriteNode(0, "0");
  EXPECT_EQ(Nodes({0}), Folder() + "node1/cpulist cannot be read");
  WriteNode(1, "1;2");
  EXPECT_EQ(Nodes({0}), is_no_list("node1/cpulist", "1;2"));
  WriteNode(1, "0-1");
  EXPECT_EQ(Nodes({0}), Folder() + ": a CPU is on two nodes");
  WriteNode(1, "2");
  EXPECT_EQ(Nodes({0, 1, 2}), Folder() + ": CPU 1 is on no node");
  WriteNode(1, "1");
  WriteNodes("has_memory", "all");
  EXPECT_EQ(Nodes({0, 1}), is_no_list("has_memory", "all"));
}

// On any machine: the nodes have the processors of this process.
TEST_F(NumaNodesTest, ThisMachinesNodesHaveAllProcessors) {
  const auto nodes = NumaNodes();
  ASSERT_TRUE(nodes.ok()) << nodes.status().message();
  if (nodes->empty()) GTEST_SKIP() << "this system lists no nodes";
  size_t count = 0;
  for (const NumaNode& node : *nodes) count += node.cpus.size();
  EXPECT_EQ(count, base::AffinityCpus().size());
}

TEST_F(NumaNodesTest, AThreadIsKeptOnProcessors) {
  const std::vector<int> before = base::AffinityCpus();
  ASSERT_FALSE(before.empty());
  bool kept = false, refused = true;
  std::vector<int> after;
  std::thread([&] {
    kept = KeepThreadOn({before.back()});
    refused = !KeepThreadOn({1 << 19});  // more than any machine has
    after = base::AffinityCpus();
  }).join();
  EXPECT_TRUE(kept && refused);
  EXPECT_EQ(after, std::vector<int>{before.back()});
  EXPECT_EQ(base::AffinityCpus(), before);
}

}  // namespace
}  // namespace minisgl
