"""Keep the C library from holding memory that was freed: few arenas, and what is unused given back."""

from __future__ import annotations

from contextlib import suppress

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def use_few_arenas() -> None:
    """Let all threads of this process share two arenas of malloc; without glibc, change nothing.

    By default there are eight for each core (`man mallopt`), and what one of many threads frees stays in its arena: in
    a quarter of an hour of `make soak`, 25 MB more.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def release_freed_memory() -> None:
    """Return the unused pages of this process to the system; without glibc, change nothing.

    What lives for long lies between what lived for one look, so that the end of the heap is never free: only
    `malloc_trim` returns pages before it. In some milliseconds, for a fleet of thousands.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
