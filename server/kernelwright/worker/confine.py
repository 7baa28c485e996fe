"""The walls around a candidate: Landlock, seccomp, resource limits and dropped capabilities, through ctypes alone.

Needs no root and no helper program. Everything here is irrevocable for the calling process and what it starts. Standard
library only; nothing of torch.

Numbers and layouts: linux/landlock.h, linux/seccomp.h, linux/filter.h, linux/capability.h and the syscall tables of
x86-64 and arm64. The interpreter runs with neither exec nor fork; a compiler needs both for ptxas, and then the programs
that it may start are named one by one.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import platform
import resource
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 24, 22, 38
_LANDLOCK_CREATE, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT = 444, 445, 446

SIGKILL = 9
KEPT_VARIABLES = ("PATH", "LANG", "LANGUAGE", "TZ", "CC", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME")
KEPT_PREFIXES = ("LC_", "TRITON_", "OMP_", "OPENBLAS_", "MKL_", "NVIDIA_", "HIP_", "ROCR_")


@dataclass(frozen=True)
class Walls:
    """What one job may do. Folders and files are absolute; limits in bytes and seconds."""

    scratch: Path
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()
    """Files, or folders of files, that may be executed; () denies exec and fork altogether."""
    kernels: Path | None = None
    """A cache of compiled kernels to read, instead of one of its own in `scratch`."""
    gpu: bool = False
    memory: int | None = None
    """Bytes of address space on top of what the process has; None where CUDA reserves terabytes of it."""
    file_size: int = 2 << 30
    cpu_s: int = 60


@dataclass(frozen=True)
class Strength:
    """How strong the walls are on this machine."""

    landlock_abi: int
    seccomp: bool
    user: str


def strength() -> Strength:
    """What the kernel offers; asks only, changes nothing. `landlock_abi` is 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return Strength(0, False, "root" if os.name == "posix" and os.geteuid() == 0 else "user")
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    seccomp = "Seccomp:" in status and platform.machine() in _ARCHITECTURES
    return Strength(landlock_abi(), seccomp, "root" if os.geteuid() == 0 else "user")


def confine(walls: Walls) -> Strength:
    """Shut the calling, single-threaded process in. Returns what could be had.

    Raises:
        OSError: a wall that this kernel offers could not be put up.
    """
    found = strength()
    os.environ.update(_scratch_environment(walls))
    _limit(walls)
    if not sys.platform.startswith("linux"):
        return found
    _LIBC.prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    _drop_capabilities()
    if found.landlock_abi:
        _landlock(walls, found.landlock_abi)
    if found.seccomp:
        _seccomp(walls)
    return found


# --- Environment and limits ------------------------------------------------------------------------------------------


def forget_environment() -> None:
    """Keep only variables that torch, Triton and their compilers read."""
    for name in list(os.environ):
        if name not in KEPT_VARIABLES and not name.startswith(KEPT_PREFIXES):
            del os.environ[name]


def _scratch_environment(walls: Walls) -> dict[str, str]:
    names = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_HOME")
    caches = {"TRITON_CACHE_DIR": walls.kernels or walls.scratch / "triton"}
    caches["TORCHINDUCTOR_CACHE_DIR"] = walls.scratch / "inductor"
    return {name: str(walls.scratch) for name in names} | {name: str(folder) for name, folder in caches.items()}


def _limit(walls: Walls) -> None:
    """Resource limits; a job that meets one of them gets MemoryError, OSError or a signal."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_CPU, walls.cpu_s)
    _lower(resource.RLIMIT_FSIZE, walls.file_size)
    _lower(resource.RLIMIT_NOFILE, 256)
    if walls.memory is not None and not walls.gpu:
        _lower(resource.RLIMIT_AS, _address_space() + walls.memory)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # if memory runs out, this one goes


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (bound, bound))


def _address_space() -> int:
    """Bytes of address space in use."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return 8 << 30
    return pages * resource.getpagesize()


def _drop_capabilities() -> None:
    """As root in a container, capabilities would let the candidate read the server's memory and environment."""
    for capability in range(64):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _LIBC.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6))


# --- Landlock --------------------------------------------------------------------------------------------------------


class Files(enum.IntFlag):
    """What Landlock can deny of files, in the order of the bits of `handled_access_fs`."""

    EXECUTE = enum.auto()
    WRITE_FILE = enum.auto()
    READ_FILE = enum.auto()
    READ_DIR = enum.auto()
    REMOVE_DIR = enum.auto()
    REMOVE_FILE = enum.auto()
    MAKE_CHAR = enum.auto()
    MAKE_DIR = enum.auto()
    MAKE_REG = enum.auto()
    MAKE_SOCK = enum.auto()
    MAKE_FIFO = enum.auto()
    MAKE_BLOCK = enum.auto()
    MAKE_SYM = enum.auto()
    REFER = enum.auto()
    TRUNCATE = enum.auto()
    IOCTL_DEV = enum.auto()


_READ = Files.READ_FILE | Files.READ_DIR
_PROGRAM = _READ | Files.EXECUTE
_CHANGE = Files.WRITE_FILE | Files.REMOVE_DIR | Files.REMOVE_FILE | Files.TRUNCATE | Files.REFER
_WRITE = _READ | _CHANGE | Files.MAKE_DIR | Files.MAKE_REG | Files.MAKE_SYM
_DEVICE = _READ | Files.WRITE_FILE | Files.IOCTL_DEV
_ON_FILES = Files.EXECUTE | Files.WRITE_FILE | Files.READ_FILE | Files.TRUNCATE | Files.IOCTL_DEV
_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many of the rights above a version of Landlock knows; 16 from version 5 on."""


def landlock_abi() -> int:
    """The version of Landlock that this kernel has, 0 for none."""
    version = _LIBC.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(int(version), 0)


def _landlock(walls: Walls, abi: int) -> None:
    """Deny every file except those named, TCP (ABI 4), and signals and abstract sockets to the outside (ABI 6)."""
    handled = (1 << _RIGHTS_BY_ABI.get(abi, 16)) - 1
    attribute = struct.pack("QQQ", handled, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _LIBC.syscall(_LANDLOCK_CREATE, attribute, ctypes.c_size_t(len(attribute)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for paths, rights in _rules(walls):
        for path in paths:
            _allow(ruleset, path, rights & handled)
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _LIBC.syscall(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint32(0)):
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)


def _rules(walls: Walls) -> Iterable[tuple[Iterable[str | Path], int]]:
    yield (*_library_folders(), *walls.readable), _READ
    yield ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"), _READ
    yield ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu"), _READ
    yield (walls.scratch, *walls.writable), _WRITE
    yield ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"), _DEVICE
    if walls.programs:
        yield (*walls.programs, *_dynamic_loaders()), _PROGRAM
    if walls.gpu:  # CUDA names its threads in /proc/self, truncating the file first; else it fails with error 304
        yield ("/sys", "/proc/devices", "/proc/modules", "/proc/filesystems", "/proc/version", "/proc/sys"), _READ
        yield ("/proc/driver/nvidia", "/etc/nsswitch.conf", "/etc/passwd"), _READ
        yield ("/proc/self",), _READ | Files.WRITE_FILE | Files.TRUNCATE
        yield (*Path("/dev").glob("nvidia*"), "/dev/dri", "/dev/kfd", "/dev/shm"), _DEVICE
        yield ("/dev/shm",), _WRITE


def _allow(ruleset: int, path: str | Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there need not be allowed
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _ON_FILES
        rule = struct.pack("=QI", rights, descriptor)
        if _LIBC.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, ctypes.c_uint32(0)):
            raise OSError(ctypes.get_errno(), "landlock_add_rule", str(path))
    finally:
        os.close(descriptor)


def _library_folders() -> set[Path]:
    """Where Python, its packages and the shared libraries lie."""
    paths = sysconfig.get_paths()
    folders = [Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [Path(sys.prefix, "lib"), Path(sys.base_prefix, "lib")]
    folders += [Path(name) for name in ("/usr", "/lib", "/lib64", "/opt/rocm")]
    for name in ("torch", "triton", "numpy", "ml_dtypes"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            folders.append(Path(file).parent.parent)
    return {folder.resolve() for folder in folders if folder.is_dir()} - {Path("/")}


def _dynamic_loaders() -> set[Path]:
    """The kernel executes the dynamic loader for every program that is not static."""
    patterns = ("lib*/ld-linux*", "lib/*/ld-linux*")
    return {path.resolve() for pattern in patterns for path in Path("/").glob(pattern)}


# --- seccomp ---------------------------------------------------------------------------------------------------------

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_X32 = 0x40000000
_CLONE_THREAD, _CLONE_VFORK = 0x00010000, 0x00004000
_AF_UNIX = 1

_X86_64 = {
    "socket": 41, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "shmget": 29, "semget": 64,
    "msgget": 68, "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "setuid": 105,
    "setgid": 106, "setpgid": 109, "setsid": 112, "setreuid": 113, "setregid": 114, "setresuid": 117, "setresgid": 119,
    "rt_sigqueueinfo": 129, "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144, "pivot_root": 155,
    "chroot": 161, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "init_module": 175,
    "delete_module": 176, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "tkill": 200, "sched_setaffinity": 203,
    "tgkill": 234, "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
    "ioprio_set": 251, "migrate_pages": 256, "fchownat": 260, "fchmodat": 268, "unshare": 272, "move_pages": 279,
    "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "prlimit64": 302, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "sched_setattr": 314,
    "memfd_create": 319, "bpf": 321, "execveat": 322, "userfaultfd": 323,
}  # fmt: skip
_ARM64 = {
    "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "ioprio_set": 30, "umount2": 39, "mount": 40, "pivot_root": 41,
    "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "unshare": 97, "kexec_load": 104,
    "init_module": 105, "delete_module": 106, "ptrace": 117, "sched_setparam": 118, "sched_setscheduler": 119,
    "sched_setaffinity": 122, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "setpriority": 140,
    "reboot": 142, "setregid": 143, "setgid": 144, "setreuid": 145, "setuid": 146, "setresuid": 147, "setresgid": 149,
    "setpgid": 154, "setsid": 157, "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "socket": 198,
    "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "swapon": 224, "swapoff": 225,
    "migrate_pages": 238, "move_pages": 239, "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "prlimit64": 261,
    "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
    "finit_module": 273, "sched_setattr": 274, "memfd_create": 279, "bpf": 280, "execveat": 281, "userfaultfd": 282,
}  # fmt: skip
_COMMON = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "fchmodat2": 452,
}  # fmt: skip
_BY_ARGUMENT = {"socket", "clone", "clone3", "kill", "tgkill", "prlimit64"}
_WITH_GPU = {"shmget", "memfd_create", "sched_setaffinity", "sched_setscheduler", "sched_setattr", "sched_setparam"}
_WITH_PROGRAMS = {"execve", "execveat", "vfork"}
_ARCHITECTURES = {"x86_64": (0xC000003E, _X86_64 | _COMMON), "aarch64": (0xC00000B7, _ARM64 | _COMMON)}

Instruction = tuple[int, int, int, int]
"""A BPF instruction: code, jump if true, jump if false, operand."""


def _refuse(error: int) -> Instruction:
    return (_RETURN, 0, 0, 0x00050000 | error)


def _argument(position: int) -> Instruction:
    """Load the low word of a system call's argument."""
    return (_LOAD, 0, 0, 16 + 8 * position)


def _only_if(number: int, *test: Instruction) -> list[Instruction]:
    """Run `test`, which ends in a return each way, if the system call is `number`."""
    return [(_JUMP_EQUAL, 0, len(test), number), *test]


def filter_program(walls: Walls, machine: str, pid: int) -> list[Instruction]:
    """The seccomp filter: the tables' system calls are refused, but for those whose arguments decide.

    Everything else is allowed: files are Landlock's part. `pid` is the only process that may be signalled.
    """
    architecture, numbers = _ARCHITECTURES[machine]
    allowed = _BY_ARGUMENT | (_WITH_GPU if walls.gpu else set()) | (_WITH_PROGRAMS if walls.programs else set())
    allow, permission = (_RETURN, 0, 0, _ALLOW), _refuse(1)
    program: list[Instruction] = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    program += [(_LOAD, 0, 0, 0)]
    if machine == "x86_64":
        program += [(_JUMP_GREATER_EQUAL, 0, 1, _X32), permission]
    for name, number in numbers.items():
        if name not in allowed:
            program += _only_if(number, permission)
    own = [_argument(0), (_JUMP_EQUAL, 0, 1, pid), allow, permission]
    if not walls.programs:
        program += _only_if(numbers["kill"], *own)
        program += _only_if(numbers["tgkill"], *own)
    nobody_else = [_argument(0), (_JUMP_EQUAL, 1, 0, 0), (_JUMP_EQUAL, 0, 1, pid), allow, permission]
    program += _only_if(numbers["prlimit64"], *nobody_else)
    program += _only_if(numbers["clone3"], _refuse(38))  # then the C library uses clone, whose flags can be seen
    kinds = _CLONE_THREAD | (_CLONE_VFORK if walls.programs else 0)  # a thread, or a step towards one of the programs
    program += _only_if(numbers["clone"], _argument(0), (_JUMP_BITS, 0, 1, kinds), allow, permission)
    unix = [_argument(0), (_JUMP_EQUAL, 0, 1, _AF_UNIX), allow] if walls.gpu else []
    program += _only_if(numbers["socket"], *unix, _refuse(13))
    return [*program, allow]


def _seccomp(walls: Walls) -> None:
    program = filter_program(walls, platform.machine(), os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    description = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _LIBC.prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(description), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")
