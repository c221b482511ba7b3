"""chroot into a root without /proc."""

import os
import sys

from place import again, libc, private_mounts

root = "/tmp/kindness-root"
private_mounts()
os.makedirs(root, exist_ok=True)
libc("mount", b"tmpfs", root.encode(), b"tmpfs", 0, b"size=1m")
for name in ("usr", "lib", "lib64", "bin", "etc", "root", "work", "tmp", "opt", "home"):
    if os.path.islink(f"/{name}"):
        os.symlink(os.readlink(f"/{name}"), f"{root}/{name}")
    elif os.path.isdir(f"/{name}"):
        os.mkdir(f"{root}/{name}")
        libc("mount", f"/{name}".encode(), f"{root}/{name}".encode(), None, 4096, None)  # MS_BIND
os.mkdir(f"{root}/dev")
os.chroot(root)
os.chdir("/")
os.execv(sys.executable, again())
