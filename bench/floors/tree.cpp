// The floor of the tree: rows in begin order, a stack per thread, parent and self time. And of the same rows
// unsorted: a radix sort of the starts first. And of links: one array lookup per correlation id. And of key
// averages: three sums per name. No bounds checks, no absent values, no flows.
//
//   ./tree events threads   ->   seconds of: tree, sort + tree, links, averages
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

using Clock = std::chrono::steady_clock;

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

template <typename Work>
static double seconds(Work work) {
  double best = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begin = Clock::now();
    volatile std::int64_t keep = work();
    (void)keep;
    const std::chrono::duration<double> took = Clock::now() - begin;
    if (took.count() < best) best = took.count();
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
  const double links = seconds([&] {
    std::vector<std::int64_t> launch(count, -1);
    std::int64_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t id = i / 2;
      if (i & 1) found += launch[id] >= 0;
      else launch[id] = i;
    }
    return found;
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
