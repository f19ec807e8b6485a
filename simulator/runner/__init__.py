"""Run one task on many items: here (`InProcess`), in processes of this machine (`Processes`), or on Dask and Slurm.

A task gets some items and a Memo, and returns one result for each item. Items go out in chunks; the next chunk is taken
only when a worker is about to be idle, so that a run of any length needs no more memory than a short one. Results come
back as workers finish, in any order.

A worker that dies loses nothing that is finished. The items that it may have died of are run again one by one; an item
that kills several workers gets a `Died` in place of a result.
"""

from .cluster import Dask
from .local import Died, InProcess, Processes, Runner, Task, cores, end_with_parent, keep_memo

__all__ = ["Dask", "Died", "InProcess", "Processes", "Runner", "Task", "cores", "end_with_parent", "keep_memo"]
