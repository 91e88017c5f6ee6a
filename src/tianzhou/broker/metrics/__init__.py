"""A broker's metrics: RocketMQ 5's families and `tianzhou_*`, from existing counters, and its readiness."""
