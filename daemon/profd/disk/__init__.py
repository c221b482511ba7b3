"""The disk as all rooms share it: promises of room, copies, files that enter by rename, whose turn it is to go."""
