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

// refusing consumes until the end of input and refuses every message; most is how often one is tried again, or -1.
func refusing(namesrv, group, topic, orderly, most string) {
	times, err := strconv.Atoi(most)
	check(err)
	inOrder := orderly == "true"
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithCredentials(credentials()),
		consumer.WithGroupName(group),
		consumer.WithInstance(group+strconv.Itoa(os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(inOrder),
		consumer.WithMaxReconsumeTimes(int32(times)),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, func(
		_ context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			emit(line{"event": "refused", "times": m.ReconsumeTimes, "topic": m.Topic, "id": m.GetProperty("UNIQ_KEY")})
		}
		if inOrder {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeRetryLater, nil
	}))
	check(c.Start())
	emit(line{"event": "started"})
	io.Copy(io.Discard, os.Stdin)
	check(c.Shutdown())
	emit(line{"event": "done"})
}
