"""What disks, processes, shared memory and accelerators do now, in the columns of the tools people know.

``iostat -xz``, ``pidstat -ru``, ``ipcs -m``, ``df -h /dev/shm``, ``nvidia-smi dmon``; from the same counters as a trial's.
"""
