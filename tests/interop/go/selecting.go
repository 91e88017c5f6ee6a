package main

import (
	"context"
	"io"
	"os"
	"strconv"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// choose consumes with an SQL92 expression until the end of input; in mode retry each message is refused once.
func choose(namesrv, mode, group, topic, expression string) {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithInstance(group+strconv.Itoa(os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	selector := consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
	check(c.Subscribe(topic, selector, func(
		ctx context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrently.DelayLevelWhenNextConsume = 1
		}
		for _, m := range messages {
			received(mode, m)
			if mode == "retry" && m.ReconsumeTimes == 0 {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	emit(line{"event": "started"})
	io.Copy(io.Discard, os.Stdin)
	check(c.Shutdown())
	emit(line{"event": "done"})
}
