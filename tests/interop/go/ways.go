package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// send sends messages in one of the ways delay (its level), ordered (number of keys), plain, traced.
func send(namesrv, topic, group, way, count, parameter string) {
	number, err := strconv.Atoi(count)
	check(err)
	value, err := strconv.Atoi(parameter)
	check(err)
	options := []producer.Option{
		producer.WithNameServer([]string{namesrv}),
		producer.WithCredentials(credentials()),
		producer.WithGroupName(group),
		producer.WithInstanceName(group + strconv.Itoa(os.Getpid())),
		producer.WithNamespace(os.Getenv("STRANGER_NAMESPACE")),
	}
	if way == "traced" {
		options = append(options, producer.WithTrace(tracing(namesrv, group)))
	}
	if way == "ordered" {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	p, err := rocketmq.NewProducer(options...)
	check(err)
	check(p.Start())
	for i := 0; i < number; i++ {
		m := primitive.NewMessage(topic, []byte(fmt.Sprintf("body %d", i)))
		m.WithProperty("index", strconv.Itoa(i))
		m.WithTag(fmt.Sprintf("tag%d", i%4))
		m.WithKeys([]string{fmt.Sprintf("key-%d", i)})
		switch way {
		case "delay":
			m.WithDelayTimeLevel(value)
		case "ordered":
			m.WithShardingKey(fmt.Sprintf("order-%d", i%value))
		}
		result, err := p.SendSync(context.Background(), m)
		check(err)
		emit(sendFields(way, i, result))
	}
	if way == "traced" {
		// The client does not send what it still has when it ends, and tells nobody when it has sent it.
		io.Copy(io.Discard, os.Stdin)
	}
	check(p.Shutdown())
	emit(line{"event": "done"})
}

func tracing(namesrv, group string) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		TraceTopic:  "RMQ_SYS_TRACE_TOPIC",
		GroupName:   group,
		Credentials: credentials(),
		Resolver:    primitive.NewPassthroughResolver([]string{namesrv}),
	}
}

// ask sends requests and waits for their replies.
func ask(namesrv, topic, group, count string) {
	number, err := strconv.Atoi(count)
	check(err)
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithCredentials(credentials()),
		producer.WithGroupName(group),
		producer.WithInstanceName(group+strconv.Itoa(os.Getpid())),
	)
	check(err)
	check(p.Start())
	for i := 0; i < number; i++ {
		m := primitive.NewMessage(topic, []byte(fmt.Sprintf("question %d", i)))
		reply, err := p.Request(context.Background(), 60*time.Second, m)
		check(err)
		emit(line{"event": "replied", "i": i, "body": string(reply.Body)})
	}
	check(p.Shutdown())
	emit(line{"event": "done"})
}

// answer consumes requests and replies to each until the end of input.
func answer(namesrv, topic, group string) {
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithCredentials(credentials()),
		producer.WithGroupName(group+"_p"),
		producer.WithInstanceName(group+strconv.Itoa(os.Getpid())),
	)
	check(err)
	check(p.Start())
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithCredentials(credentials()),
		consumer.WithGroupName(group),
		consumer.WithInstance(group+strconv.Itoa(os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{}, func(
		ctx context.Context, messages ...*primitive.MessageExt,
	) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			reply, err := consumer.CreateReplyMessage(m, nil)
			check(err)
			// What the client puts the body into is its properties.
			reply.Body = append([]byte("re: "), m.Body...)
			if _, err = p.SendSync(ctx, reply); err != nil {
				emit(line{"event": "failed", "error": err.Error()})
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(c.Start())
	emit(line{"event": "started"})
	io.Copy(io.Discard, os.Stdin)
	check(c.Shutdown())
	check(p.Shutdown())
	emit(line{"event": "done"})
}

// subscribed is what the environment says about tags.
func subscribed() consumer.MessageSelector {
	if tags := os.Getenv("STRANGER_TAGS"); tags != "" {
		return consumer.MessageSelector{Type: consumer.TAG, Expression: tags}
	}
	return consumer.MessageSelector{}
}

// take consumes in one of the roles plain, traced, orderly, broadcasting, batch, again, until the end of input.
// The environment says more: STRANGER_NAMESPACE, STRANGER_FROM (the time, in UTC, at which new groups begin),
// STRANGER_TAGS.
func take(namesrv, role, group, topic, members string) {
	number, err := strconv.Atoi(members)
	check(err)
	consumers := make([]rocketmq.PushConsumer, 0, number)
	for n := 0; n < number; n++ {
		name := fmt.Sprintf("%s-%d", role, n)
		options := []consumer.Option{
			consumer.WithNameServer([]string{namesrv}),
			consumer.WithCredentials(credentials()),
			consumer.WithGroupName(group),
			consumer.WithInstance(name + group),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
			consumer.WithNamespace(os.Getenv("STRANGER_NAMESPACE")),
		}
		if from := os.Getenv("STRANGER_FROM"); from != "" {
			options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp),
				consumer.WithConsumeTimestamp(from))
		}
		switch role {
		case "broadcasting":
			options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
		case "batch":
			options = append(options, consumer.WithConsumeMessageBatchMaxSize(8))
		case "traced":
			options = append(options, consumer.WithTrace(tracing(namesrv, group)))
		case "orderly":
			options = append(options, consumer.WithConsumerOrder(true),
				consumer.WithSuspendCurrentQueueTimeMillis(100*time.Millisecond))
		}
		c, err := rocketmq.NewPushConsumer(options...)
		check(err)
		check(c.Subscribe(topic, subscribed(), handler(name, role)))
		check(c.Start())
		consumers = append(consumers, c)
	}
	emit(line{"event": "started"})
	io.Copy(io.Discard, os.Stdin)
	for _, c := range consumers {
		check(c.Shutdown())
	}
	emit(line{"event": "done"})
}

// handler handles messages; orderly it handles what is 7 modulo 50 at second sight; in the role again it refuses what
// is 7 modulo 10 at first sight.
func handler(name, role string) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	var seen sync.Map
	return func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrently.DelayLevelWhenNextConsume = 1
		}
		for _, m := range messages {
			index, err := strconv.Atoi(m.GetProperty("index"))
			if err != nil {
				index = -1
			}
			fail := false
			if role == "orderly" && index%50 == 7 {
				_, known := seen.LoadOrStore(index, true)
				fail = !known
			}
			if role == "again" && index%10 == 7 && m.ReconsumeTimes == 0 {
				fail = true
			}
			emit(line{
				"event": "received", "consumer": name, "i": index, "queueId": m.Queue.QueueId,
				"topic": m.Topic, "tags": m.GetTags(),
				"queueOffset": m.QueueOffset, "reconsumeTimes": m.ReconsumeTimes, "together": len(messages),
				"bornTimestamp": m.BornTimestamp, "storeTimestamp": m.StoreTimestamp,
				"at": time.Now().UnixMilli(), "failed": fail,
			})
			if fail && role == "again" {
				return consumer.ConsumeRetryLater, nil
			}
			if fail {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
}
