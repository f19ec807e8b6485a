"""The second interpreter of a Program: every rank is a process, every op does the real thing, every span is measured.

parts         what one rank does of each op, and what it waits for on this and on other ranks
lanes         one thread per lane runs them in lane order and takes the time
acts          what every rank has and does: memory, also what others read or write, process groups, the check of bytes
serving       what the ops of an update by parameter servers do: copies, collectives, messages
transferring  what those of an update from trainers do, one class per way of the bytes
content       the bytes that travel, who holds which, what must be where in the end, and whether there is memory for it
backend       the device: host memory with Gloo, or CUDA with NCCL (untested on several GPUs)
updates       a weight update: which of these do its ops
world         which rank this is, all ranks as processes of this machine, how they join and what they tell each other
watch         who is lost when ranks wait in vain, in one line of one rank
measured      all ranks' spans as one table, a Timeline and files
run           a Program in one rank, on one time for all ranks
kinds         which kinds of scenario are executed, and by what
training/     a training step: what its ops do, and its gradients against one process's

Collectives of kind `collective` have no Program here: their algorithms' messages are run as they are.

exchanging    the messages of one process: its sending and its receiving port
blocks        which blocks a rank has at first and is owed, and the library's own collective on them
collectives   every size by every algorithm of a scenario, timed and checked
"""
