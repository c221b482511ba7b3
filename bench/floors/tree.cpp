// The floor of the tree: rows in begin order, a stack per thread, parent and self time. And of the same rows
// unsorted: a radix sort of the starts first. And of links: one array lookup per correlation id, of mixed rows of
// which a quarter are launches and what they launched. And of key averages: three sums per name. No bounds checks,
// no absent values, no flows.
//
//   ./tree events threads   ->   CPU seconds of: tree, sort + tree, links, averages
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <utility>
#include <vector>

struct Rows {
  std::vector<std::int64_t> start, end;
  std::vector<std::int32_t> thread, name;
};

static Rows generate(std::size_t count, int threads) {
  Rows rows;
  std::mt19937_64 random(1);
  std::vector<std::vector<std::int64_t>> open(threads);
  std::int64_t now = 0;
  for (std::size_t i = 0; i < count; ++i) {
    now += random() % 500;
    auto& stack = open[random() % threads];
    while (!stack.empty() && (stack.back() <= now || stack.size() > 8)) stack.pop_back();
    std::int64_t end = now + 100 + random() % 20000;
    if (!stack.empty() && end > stack.back()) end = stack.back();
    stack.push_back(end);
    rows.start.push_back(now);
    rows.end.push_back(end);
    rows.thread.push_back(&stack - open.data());
    rows.name.push_back(random() % 400);
  }
  return rows;
}

static std::int64_t tree(const Rows& rows, int threads) {
  struct Frame { std::int64_t end; std::int64_t row; };
  std::vector<std::vector<Frame>> open(threads);
  std::vector<std::int64_t> parent(rows.start.size(), -1), self(rows.start.size());
  for (std::size_t i = 0; i < rows.start.size(); ++i) {
    auto& stack = open[rows.thread[i]];
    while (!stack.empty() && stack.back().end <= rows.start[i]) stack.pop_back();
    self[i] = rows.end[i] - rows.start[i];
    if (!stack.empty()) {
      parent[i] = stack.back().row;
      self[parent[i]] -= self[i];
    }
    stack.push_back({rows.end[i], static_cast<std::int64_t>(i)});
  }
  return parent.back() + self.front();
}

static std::vector<std::uint32_t> sort(const std::vector<std::int64_t>& keys) {
  std::vector<std::uint32_t> order(keys.size()), next(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) order[i] = i;
  std::int64_t high = 0;
  for (auto key : keys) high |= key;
  for (int shift = 0; shift < 64 && (high >> shift); shift += 11) {
    std::vector<std::size_t> at(2049);
    for (auto row : order) ++at[((keys[row] >> shift) & 2047) + 1];
    for (int i = 0; i < 2048; ++i) at[i + 1] += at[i];
    for (auto row : order) next[at[(keys[row] >> shift) & 2047]++] = row;
    std::swap(order, next);
  }
  return order;
}

static double cpu() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Work>
static double seconds(Work work) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = cpu();
    volatile std::int64_t keep = work();
    (void)keep;
    const double took = cpu() - begin;
    if (took < best) best = took;
  }
  return best;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::size_t count = std::strtoull(argv[1], nullptr, 10);
  const int threads = std::atoi(argv[2]);
  const Rows rows = generate(count, threads);
  Rows mixed = rows;
  std::mt19937_64 random(2);
  for (std::size_t i = count - 1; i > 0; --i) {
    const std::size_t j = random() % (i + 1);
    std::swap(mixed.start[i], mixed.start[j]);
    std::swap(mixed.end[i], mixed.end[j]);
    std::swap(mixed.thread[i], mixed.thread[j]);
  }
  const double ordered = seconds([&] { return tree(rows, threads); });
  const double unsorted = seconds([&] {
    const auto order = sort(mixed.start);
    Rows sorted;
    sorted.start.resize(count), sorted.end.resize(count), sorted.thread.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      sorted.start[i] = mixed.start[order[i]];
      sorted.end[i] = mixed.end[order[i]];
      sorted.thread[i] = mixed.thread[order[i]];
    }
    return tree(sorted, threads);
  });
  std::vector<std::int64_t> ids(count);
  std::vector<std::uint8_t> kind(count);  // of eight rows one launches, and a later one is what it launched
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const std::size_t a = random() % 8, b = (a + 1 + random() % 7) % 8;
    kind[i + std::min(a, b)] = 1;
    kind[i + std::max(a, b)] = 2;
    for (std::size_t row = i; row < i + 8; ++row) ids[row] = static_cast<std::int64_t>(i / 8) + 1;
  }
  const double links = seconds([&] {
    std::vector<std::int64_t> launch(count / 8 + 2, -1), linked(count, -1);
    for (std::size_t i = 0; i < count; ++i) {
      if (kind[i] == 1) launch[ids[i]] = i;
      if (kind[i] == 2) linked[i] = launch[ids[i]];
    }
    return linked.back() + linked[count / 2];
  });
  const double averages = seconds([&] {
    std::vector<std::int64_t> calls(400), total(400), own(400);
    for (std::size_t i = 0; i < count; ++i) {
      ++calls[rows.name[i]];
      total[rows.name[i]] += rows.end[i] - rows.start[i];
      own[rows.name[i]] += rows.start[i] & 1023;
    }
    return calls[0] + total[1] + own[2];
  });
  std::printf("%.6f %.6f %.6f %.6f\n", ordered, unsorted, links, averages);
}
