"""A broker's metrics: RocketMQ 5's families and `tianzhou_*`, read from what it counts anyhow, and its readiness."""
