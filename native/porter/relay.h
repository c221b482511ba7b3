// One connection of an agent and the pair to the daemon, and what goes from one to the other.
//
// A packet goes up behind one byte, and with its descriptor where that is a sealed file in memory: the close of such
// waits for nobody. Everything else ends the connection; why is the last thing that the daemon hears. Down goes what
// the daemon says, as it is. A packet is read where the other side has room for it, and so never lies here; one with a
// descriptor where the daemon has read all that came before.
#pragma once

#include <cstddef>

namespace profd::porter {

inline constexpr std::size_t kPacketMax = 16 * 1024;  // AGENT_PACKET_BYTES_MAX
inline constexpr int kBatch = 16;                     // packets at once: nobody's flood keeps others waiting
inline constexpr int kLastWordsMax = 512;             // packets that are taken once the daemon wants no more

// The first byte of what goes up (profd.attached.agents.link).
enum class Up : unsigned char {
  Packet = 0,
  TooMuch = 1,  // too long, or more descriptors than one
  NoArena = 2,  // a descriptor that is no sealed file in memory
  Unread = 3,   // the connection cannot be read
  Closed = 4,   // the agent has closed it; who ends without a word was killed
};

struct Relay {
  int connection = -1;  // the agent's
  int pair = -1;        // the daemon's
  int last_words = -1;  // packets that may still go up, once the daemon wants no more; -1: it does
  bool queued = false;
  bool stream = false;  // of bytes (stream.h), and these directions of it have ended
  bool up_over = false, down_over = false;
};

enum class Next { Wait, Again, Over };

// Move what can be moved now, a bounded number of packets.
Next step(Relay& relay);

}  // namespace profd::porter
