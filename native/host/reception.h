// Accepts connections in a thread of its own, and lets those through to the event loop that their users may have.
//
// Who connects too often is answered and closed here, so that it costs the loop nothing. A user is a uid, by the
// kernel. Nothing is read. Where descriptors may lie in a connection that is closed without being read (a sender's
// descriptors), a process of that user's closes it, because that may wait.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "allowance.h"
#include "peers.h"
#include "porter_words.h"

namespace profd::host {

struct ReceptionLimits {
  double per_second;  // connections of one user
  double burst;       // after a pause
  int waiting;        // for the event loop; no more are accepted then
  int users;          // who are told apart
  uid_t streamers;    // who come for many users, and are not counted here
};

struct Arrival {
  int fd;
  Peer peer;
};

struct ReceptionCounts {
  std::uint64_t refused = 0;
  uid_t refused_uid = 0;  // the last that was refused
};

class Reception {
 public:
  // `admins`: as Peers has them. `refusal`: sent to who comes too often; empty: nothing is. `droppers`: close connections;
  // null: they are closed here. Throws std::system_error.
  Reception(gid_t admins, const ReceptionLimits& limits, std::string refusal, std::shared_ptr<Droppers> droppers);
  ~Reception();

  // Accept on this listening socket from now on; the descriptor becomes ours. The one before (-1: there was none) is
  // the caller's, to be closed as a connection is. -1: accept no more.
  int listen(int listener);
  // Who may come as often as they like, from now on. In any thread.
  void set_admins(gid_t admins) { peers_.set_admins(admins); }
  // Readable when there is something to take, or something new in `counts`.
  int signal() const { return signal_; }
  // Those who came first, at most so many.
  std::vector<Arrival> take(std::size_t most);
  // Connections that are to be closed, for whose user nobody does that now. The caller's from here on.
  std::vector<int> take_undropped();
  // Since the beginning. The signal is off until there is more.
  ReceptionCounts counts();
  // End the thread. Descriptors that are left are the caller's, to be closed as connections are.
  std::vector<int> close();

 private:
  void run();
  int patience(Time now) const;
  void accept_some();
  bool accept_one();
  void receive(int fd, const Peer& peer);
  bool may(const Peer& peer);
  void forget_users(Time now);
  void refuse(int fd, uid_t uid);
  void drop(int fd, uid_t uid);
  void see_whether_full();
  void watch(bool on);
  void tell(bool at_once);

  Peers peers_;
  const ReceptionLimits limits_;
  const std::string refusal_;
  const std::shared_ptr<Droppers> droppers_;
  int epoll_ = -1, wake_ = -1, signal_ = -1;

  // The thread's.
  std::unordered_map<uid_t, Allowance> users_;
  Time told_{}, accept_again_{};
  bool untold_ = false;

  std::mutex accepting_;  // held while a connection is accepted, and while that changes on what
  int listener_ = -1;
  bool watched_ = false;

  std::mutex mutex_;
  std::deque<Arrival> arrived_;
  std::vector<int> undropped_;
  ReceptionCounts counts_;
  bool is_full_ = false, closing_ = false;
  std::thread thread_;
};

}  // namespace profd::host
