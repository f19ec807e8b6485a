"""The second interpreter of a Program: every rank is a process, every op does the real thing, every span is measured.

    parts       what one rank does of each op, and what it waits for on this and on other ranks
    lanes       one thread per lane runs them in lane order and takes the time
    acts        what the ops of each kind do: copies, collectives, messages
    content     the bytes that travel, and the check that they arrived
    shared      memory that other ranks read, in P2P mode
    backend     the device: host memory with Gloo, or CUDA with NCCL (untested so far)
    memory      whether this machine has the memory that its ranks need
    launch      all ranks as processes of this machine
    world       which rank this is, how all join, signals between them
    clock       one time for all ranks
    measured    all ranks' spans as one table, a Timeline and files
    run         all of it, in one rank

A rank's parameter server and its worker are threads of one process: their messages are pickled and queued instead of
sent through ZeroMQ, and the shared halves are plain memory instead of a CUDA IPC handle.
"""
