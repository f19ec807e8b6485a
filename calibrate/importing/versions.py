"""Versions of libraries as tools encode them."""


def decoded(code: int) -> str:
    """`2.31.2` for 23102, `2.7.8` for 2708.

    nccl.h: NCCL_VERSION(X,Y,Z) is X*1000 + Y*100 + Z up to 2.8 and X*10000 + Y*100 + Z from 2.9 on; RCCL's is the same.
    """
    thousands = 10_000 if code >= 10_000 else 1_000
    major, rest = divmod(code, thousands)
    return f"{major}.{rest // 100}.{rest % 100}"
