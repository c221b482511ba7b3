// The door: owns the socket that clients connect to, and stands between them and gRPC.
//
// gRPC accepts by itself, hides who is at the other end, and counts all calls together. So one thread accepts for it,
// asks the kernel whose each connection is, and carries bytes to and fro. It counts connections, streams and frames by
// user; who has more than their part is not read from for a while, so that a flood waits at its sender.
//
// What a client sends is untrusted. Buffers are bounded, turns are taken by user and then by connection, and nothing
// here waits for anybody. The GIL is never needed. Of what gRPC would have to keep until its end has come, a header
// block, there is a size, a number of fields and a time.
#pragma once

#include <sys/types.h>

#include <array>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "door_connection.h"
#include "peers.h"

namespace profd::host {

struct DoorLimits {
  int each;              // connections of one user
  int host;              // of all users
  int answered_each;     // connections beyond these that are told so, of one user
  int answered_host;     // and of all; the rest is closed at once
  int header_block_bytes;  // of one call's headers, in however many frames
  int header_fields;       // the same: a byte can be one, of 4 KiB
  double begin_seconds;  // that a client has to say that it speaks HTTP/2, and from a header block's begin to its end
  double end_seconds;    // from the end of one side to that of the connection
  Allowance::Rates user, all;
  gid_t admins = NO_GROUP;  // at first: whose members are free, as root is
  uid_t streamers;  // who has one connection for each user that is recorded, and what all may have
};

// What there is and was. `refused` counts connections, `foreign` those that do not keep to HTTP/2 or to the limits of a
// header block, `throttled` the times that one had to wait.
struct DoorCounts {
  std::atomic<std::uint64_t> open{0}, refused{0}, throttled{0}, foreign{0};
  std::atomic<std::uint32_t> refused_uid{0};  // the last of them
};

struct User {
  User(uid_t uid, bool free, const Allowance::Rates& rates, Time now) : uid(uid), free(free), allowance(rates, now) {}

  uid_t uid;
  bool free;  // who runs the host, or this daemon
  Allowance allowance;
  int open = 0, turned_away = 0;
  std::deque<Connection*> ready, waiting;
  bool queued = false, in_line = false;
};

class Door {
 public:
  // `server`: the path of gRPC's socket. `refusals`: header blocks (HPACK) for calls of connections beyond a user's
  // part, and beyond the host's. Throws std::system_error.
  Door(std::string server, const DoorLimits& limits, std::array<std::string, 2> refusals);
  ~Door();

  // Accept on this listening socket from now on, and on none before; the descriptor becomes ours.
  void listen(int listener);
  // Accept no more; connections go on.
  void refuse();
  // Who a connection is, by the kernel, and whether no limit holds for them. Throws std::system_error. In any thread.
  Peer who(int connection) const { return peers_.of(connection); }
  // Carry a connection that was accepted elsewhere, or what stands for it, for this peer; the descriptor becomes ours.
  void take(int connection, Peer peer);
  // Whose members are free from now on; connections that are open stay as they are. In any thread.
  void set_admins(gid_t admins) { peers_.set_admins(admins); }
  // End the connections of whoever has not this group, by which one may connect from now on. In any thread.
  void keep_members(gid_t group);
  // Carry what is on its way for so long at most, then end every connection and the thread. Waits for it.
  void close(double seconds);

  const DoorCounts& counts() const { return counts_; }

 private:
  void run();
  bool heed();  // what other threads asked for; whether to go on
  int patience(Time now) const;

  void take_events();
  void accept_some();
  Connection* admit(int fd, Peer peer);  // null: it was turned away without a word
  void end_others(gid_t group);
  Why why_not(const User& user) const;
  void watch_listener(bool on);
  User& user_of(uid_t uid, bool free, Time now);
  void forget_users(Time now);

  void turn();
  void queue(Connection& connection);
  void wait(Connection& connection);
  void give(Time now);
  Connection* next_to_give(User& user, Time now);
  void end_within(Connection& connection, double seconds);
  bool is_overdue(Connection& connection, Time now);
  void end_overdue(Time now);
  void end(Connection& connection);
  void watch(Connection& connection, const End& side, bool server);

  // One connection: door_carry.cpp.
  bool step(Connection& connection);  // false: it is over
  bool carry_up(Connection& connection);
  bool carry_down(Connection& connection);
  bool clear(Connection& connection);  // lets frames pass; false: they are none
  bool may_pass(Connection& connection);
  bool reach_server(Connection& connection);
  void reach_again();
  bool tell(Connection& connection);
  void watch_block(Connection& connection);

  const std::string server_;
  const DoorLimits limits_;
  const std::array<std::string, 2> refusals_;
  Peers peers_;

  int epoll_ = -1, wake_ = -1, listener_ = -1;
  bool listening_ = false;  // it is watched
  Time listen_again_{}, look_at_deadlines_{}, give_again_{}, reach_again_{};
  bool closing_ = false;  // until
  Time end_at_{};
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::uint64_t, User> users_;  // by uid; an admin's are told apart from others of the same uid
  std::size_t forget_at_ = 1024;
  std::deque<User*> turns_, line_;  // with connections that can go on; with some that wait
  std::vector<std::uint64_t> unreached_;  // gRPC's queue was full
  Allowance all_;
  bool all_wanted_ = false;  // somebody waits for the host's allowance alone
  int open_ = 0, turned_away_ = 0, users_open_ = 0;
  DoorCounts counts_;

  std::mutex mutex_;
  int asked_listener_ = -1;
  std::vector<std::pair<int, Peer>> asked_take_;
  gid_t asked_members_ = NO_GROUP;
  bool asked_refuse_ = false, asked_close_ = false;
  Time close_at_{};
  std::thread thread_;
};

}  // namespace profd::host
