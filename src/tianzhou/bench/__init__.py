"""`tianzhou bench`: loads a cluster and reports how fast it was.

`runner` is the parent process: it prepares topics and groups, starts one `worker` process for each share of the load
(`worker_pool`) and gathers what they count (`series`). A worker sends (`sending`) at the times of a `schedule`, or
receives (`receiving`). A run is described by a `LoadSpec`, also when it comes from a workload file of
openmessaging-benchmark (`workload`); what comes out is a `report`. Imports what it needs from the extra `bench` when it
needs it.
"""
