"""`tianzhou bench`: loads a cluster and reports its throughput and latency.

`runner` is the parent process. It prepares topics and groups, starts one `worker` process for each share of the load
(`worker_pool`) and aggregates their counts (`series`). A worker sends (`sending`) at the times of a `schedule`, or
receives (`receiving`). A `LoadSpec` describes a run, also one from a workload file of openmessaging-benchmark
(`workload`). The result is a `report`. The packages of the extra `bench` are imported at their first use.
"""
