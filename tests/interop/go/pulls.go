package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func puller(namesrv, group, topic string) rocketmq.PullConsumer {
	c, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithCredentials(credentials()),
		consumer.WithGroupName(group),
		consumer.WithInstance(group+strconv.Itoa(os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithMaxReconsumeTimes(2),
	)
	check(err)
	check(c.Subscribe(topic, subscribed()))
	check(c.Start())
	return c
}

func pulled(name string, m *primitive.MessageExt, fail bool) {
	index, err := strconv.Atoi(m.GetProperty("index"))
	if err != nil {
		index = -1
	}
	emit(line{
		"event": "received", "consumer": name, "i": index, "queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset,
		"reconsumeTimes": m.ReconsumeTimes, "topic": m.Topic, "tags": m.GetTags(), "failed": fail,
		"storeTimestamp": m.StoreTimestamp, "at": time.Now().UnixMilli(),
	})
}

// poll acknowledges what comes, and sends back what is 7 modulo 10 the first time.
func poll(namesrv, group, topic string) {
	c := puller(namesrv, group, topic)
	ended := make(chan struct{})
	polling := make(chan struct{})
	go func() {
		defer close(polling)
		for {
			select {
			case <-ended:
				return
			default:
			}
			request, err := c.Poll(context.Background(), 200*time.Millisecond)
			if consumer.IsNoNewMsgError(err) {
				continue
			}
			check(err)
			result := consumer.ConsumeSuccess
			for _, m := range request.GetMsgList() {
				if index, err := strconv.Atoi(m.GetProperty("index")); err == nil && index%10 == 7 && m.ReconsumeTimes == 0 {
					result = consumer.ConsumeRetryLater
				}
			}
			for _, m := range request.GetMsgList() {
				pulled("poll", m, result == consumer.ConsumeRetryLater)
			}
			c.ACK(context.Background(), request, result)
		}
	}()
	emit(line{"event": "started"})
	io.Copy(io.Discard, os.Stdin)
	close(ended)
	<-polling
	check(c.Shutdown())
	emit(line{"event": "done"})
}

// pull goes round the queues until it has count messages, at most 8 at a time, and stores how far it is.
func pull(namesrv, group, topic, count string) {
	wanted, err := strconv.Atoi(count)
	check(err)
	c := puller(namesrv, group, topic)
	ctx := context.Background()
	next := map[primitive.MessageQueue]int64{}
	store := func() {
		for queue, offset := range next {
			place := queue
			check(c.UpdateOffset(&place, offset))
		}
		check(c.PersistOffset(ctx, topic))
	}
	// Of queues that it does not know to be its own the client stores nothing, and it learns that a little later.
	time.Sleep(2 * time.Second)
	seen := map[string]bool{}
	for len(seen) < wanted {
		result, err := c.Pull(ctx, 8)
		check(err)
		messages := result.GetMessageExts()
		for _, m := range messages {
			pulled("pull", m, false)
			seen[m.OffsetMsgId] = true
		}
		if len(messages) > 0 {
			// Each pull asks the broker where the group is.
			next[*messages[0].Queue] = result.NextBeginOffset
			store()
		}
	}
	time.Sleep(time.Second)
	store()
	check(c.Shutdown())
	emit(line{"event": "done"})
}

// pullFrom reads a queue from an offset until it has count messages; at the queue's end a pull waits.
func pullFrom(namesrv, group, topic, broker, queue, offset, count string) {
	id, err := strconv.Atoi(queue)
	check(err)
	next, err := strconv.ParseInt(offset, 10, 64)
	check(err)
	missing, err := strconv.Atoi(count)
	check(err)
	c := puller(namesrv, group, topic)
	emit(line{"event": "started"})
	for missing > 0 {
		from := &primitive.MessageQueue{Topic: topic, BrokerName: broker, QueueId: id}
		result, err := c.PullFrom(context.Background(), from, next, 32)
		check(err)
		for _, m := range result.GetMessageExts() {
			pulled("from", m, false)
			missing--
		}
		next = result.NextBeginOffset
		emit(line{"event": "pulled", "next": next, "min": result.MinOffset, "max": result.MaxOffset})
	}
	check(c.Shutdown())
	emit(line{"event": "done"})
}
