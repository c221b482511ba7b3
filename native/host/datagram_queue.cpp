#include "datagram_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace profd::host {

bool FairQueue::push(Datagram&& datagram) {
  const uid_t uid = datagram.uid;
  auto [entry, first] = users_.try_emplace(uid);
  User& user = entry->second;
  if (first) turns_.push_back(uid);
  std::string key = std::to_string(datagram.socket) + ':' + datagram.address;
  std::vector<Datagram>& of_sender = user.by_sender[key];
  if (of_sender.empty()) user.order.push_back(std::move(key));
  of_sender.push_back(std::move(datagram));
  ++user.waiting;
  if (++waiting_ <= most_) return false;
  drop_of_largest();
  return true;
}

void FairQueue::drop_of_largest() {
  const auto largest = std::max_element(users_.begin(), users_.end(), [](const auto& one, const auto& other) {
    return one.second.waiting < other.second.waiting;
  });
  User& user = largest->second;
  const auto last = user.by_sender.find(user.order.back());
  last->second.pop_back();
  if (last->second.empty()) {
    user.by_sender.erase(last);
    user.order.pop_back();
  }
  --waiting_;
  if (--user.waiting > 0) return;
  turns_.erase(std::find(turns_.begin(), turns_.end(), largest->first));
  users_.erase(largest);
}

std::vector<Datagram> FairQueue::take(std::size_t about) {
  std::vector<Datagram> taken;
  while (taken.size() < about && !turns_.empty()) {
    const uid_t uid = turns_.front();
    turns_.pop_front();
    User& user = users_.at(uid);
    const auto sender = user.by_sender.find(user.order.front());
    user.order.pop_front();
    std::vector<Datagram>& all = sender->second;
    user.waiting -= all.size();
    waiting_ -= all.size();
    taken.insert(taken.end(), std::make_move_iterator(all.begin()), std::make_move_iterator(all.end()));
    user.by_sender.erase(sender);
    if (user.waiting > 0) {
      turns_.push_back(uid);
    } else {
      users_.erase(uid);
    }
  }
  return taken;
}

}  // namespace profd::host
