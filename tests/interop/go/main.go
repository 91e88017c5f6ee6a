// Command stranger is the Go client as a command: every result is one JSON object per line on standard output.
//
//	stranger produce NAMESRV TOPIC GROUP FIRST MODE:COUNT...   modes: sync, async, oneway, batch
//	stranger consume NAMESRV ROLE:GROUP:TOPIC[,TOPIC]...       role: clustering; until end of input
//	stranger transact NAMESRV TOPIC GROUP FIRST COUNT          sends, then answers checks until end of input
//	stranger refusing NAMESRV GROUP TOPIC ORDERLY MAX          refuses every message until end of input
//	stranger steady NAMESRV GROUP TOPIC FIRST                  sends one by one until end of input
//	stranger send NAMESRV TOPIC GROUP WAY COUNT PARAMETER      ways: delay, ordered, plain, traced
//	stranger ask NAMESRV TOPIC GROUP COUNT                     sends requests and waits for their replies
//	stranger answer NAMESRV TOPIC GROUP                        answers requests until end of input
//	stranger take NAMESRV ROLE GROUP TOPIC MEMBERS             roles: plain, traced, orderly, broadcasting, batch, again
//	stranger poll NAMESRV GROUP TOPIC                          polls and acknowledges until end of input
//	stranger pull NAMESRV GROUP TOPIC COUNT                    pulls so many messages that are new to the group
//	stranger from NAMESRV GROUP TOPIC BROKER QUEUE OFFSET COUNT  pulls so many messages of a queue from an offset on
//	stranger shares                                            what its strategies decide, see shares.go
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	batchSize   = 32
	asyncWindow = 64
	maxLifetime = 480 * time.Second
)

type line map[string]any

var output sync.Mutex

func emit(fields line) {
	text, err := json.Marshal(fields)
	check(err)
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func check(err error) {
	if err != nil {
		text, _ := json.Marshal(line{"event": "error", "error": err.Error()})
		os.Stdout.Write(append(text, '\n'))
		os.Exit(1)
	}
}

func main() {
	time.AfterFunc(maxLifetime, func() {
		emit(line{"event": "timeout"})
		os.Exit(3)
	})
	rlog.SetLogLevel("error")
	switch os.Args[1] {
	case "produce":
		produce(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6:])
	case "consume":
		consume(os.Args[2], os.Args[3:])
	case "transact":
		transact(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "steady":
		steady(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case "refusing":
		refusing(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "select":
		choose(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case "send":
		send(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7])
	case "ask":
		ask(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case "answer":
		answer(os.Args[2], os.Args[3], os.Args[4])
	case "poll":
		poll(os.Args[2], os.Args[3], os.Args[4])
	case "pull":
		pull(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case "from":
		pullFrom(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7], os.Args[8])
	case "shares":
		shares()
	case "take":
		take(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	default:
		check(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func body(i int) []byte {
	length := 16 + i%241
	if i%10 == 9 {
		length = 4096 + i%2048
	}
	bytes := make([]byte, length)
	for j := range bytes {
		bytes[j] = byte(1 + (i*131+j*17+j/251)%255)
	}
	return bytes
}

func message(topic string, i int) *primitive.Message {
	m := primitive.NewMessage(topic, body(i))
	m.WithTag(fmt.Sprintf("tag%d", i%4))
	m.WithKeys([]string{fmt.Sprintf("key-%d", i), fmt.Sprintf("group-%d", i/50)})
	m.WithProperty("index", strconv.Itoa(i))
	m.WithProperty("note", fmt.Sprintf("note 天舟 %d", i))
	return m
}

func produce(namesrv, topic, group, first string, modes []string) {
	i, err := strconv.Atoi(first)
	check(err)
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithCredentials(credentials()),
		producer.WithGroupName(group),
		producer.WithInstanceName(group),
		producer.WithRetry(0),
		producer.WithSendMsgTimeout(30*time.Second),
	)
	check(err)
	check(p.Start())
	ctx := context.Background()
	failed := 0
	for _, part := range modes {
		mode, text, _ := strings.Cut(part, ":")
		count, err := strconv.Atoi(text)
		check(err)
		end := i + count
		switch mode {
		case "sync":
			for ; i < end; i++ {
				result, err := p.SendSync(ctx, message(topic, i))
				check(err)
				sent(mode, i, result)
			}
		case "async":
			failed += async(ctx, p, topic, i, end)
			i = end
		case "oneway":
			for ; i < end; i++ {
				check(p.SendOneWay(ctx, message(topic, i)))
				emit(line{"event": "sent", "mode": mode, "i": i})
			}
			time.Sleep(300 * time.Millisecond)
		case "batch":
			for ; i < end; i += batchSize {
				last := i + batchSize
				if last > end {
					last = end
				}
				batch(ctx, p, topic, i, last)
			}
			i = end
		default:
			check(fmt.Errorf("unknown mode %q", mode))
		}
	}
	check(p.Shutdown())
	emit(line{"event": "done", "failed": failed})
}

func async(ctx context.Context, p rocketmq.Producer, topic string, first, end int) int {
	var waiting sync.WaitGroup
	var counting sync.Mutex
	failed := 0
	window := make(chan struct{}, asyncWindow)
	for i := first; i < end; i++ {
		index := i
		window <- struct{}{}
		waiting.Add(1)
		answered := func(_ context.Context, result *primitive.SendResult, err error) {
			defer waiting.Done()
			if err != nil {
				counting.Lock()
				failed++
				counting.Unlock()
				emit(line{"event": "failed", "mode": "async", "i": index, "error": err.Error()})
			} else {
				sent("async", index, result)
			}
			<-window
		}
		check(p.SendAsync(ctx, answered, message(topic, i)))
	}
	waiting.Wait()
	return failed
}

func batch(ctx context.Context, p rocketmq.Producer, topic string, first, end int) {
	messages := make([]*primitive.Message, 0, end-first)
	for i := first; i < end; i++ {
		messages = append(messages, message(topic, i))
	}
	result, err := p.SendSync(ctx, messages...)
	check(err)
	ids := strings.Split(result.MsgID, ",")
	offsetIDs := strings.Split(result.OffsetMsgID, ",")
	for k := range messages {
		fields := sendFields("batch", first+k, result)
		fields["queueOffset"] = result.QueueOffset + int64(k)
		fields["msgId"] = member(ids, k)
		fields["offsetMsgId"] = member(offsetIDs, k)
		emit(fields)
	}
}

func member(ids []string, k int) any {
	if k < len(ids) {
		return ids[k]
	}
	return nil
}

func sent(mode string, i int, result *primitive.SendResult) {
	emit(sendFields(mode, i, result))
}

func sendFields(mode string, i int, result *primitive.SendResult) line {
	status := fmt.Sprintf("status %d", result.Status)
	if result.Status == primitive.SendOK {
		status = "SEND_OK"
	}
	return line{
		"event": "sent", "mode": mode, "i": i, "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
		"queueId": result.MessageQueue.QueueId, "queueOffset": result.QueueOffset, "status": status,
	}
}

func consume(namesrv string, specs []string) {
	consumers := make([]rocketmq.PushConsumer, 0, len(specs))
	for n, spec := range specs {
		parts := strings.Split(spec, ":")
		name := fmt.Sprintf("%s-%d", parts[0], n)
		c, err := rocketmq.NewPushConsumer(
			consumer.WithNameServer([]string{namesrv}),
			consumer.WithCredentials(credentials()),
			consumer.WithGroupName(parts[1]),
			consumer.WithInstance(name),
			consumer.WithConsumerModel(consumer.Clustering),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		)
		check(err)
		for _, topic := range strings.Split(parts[2], ",") {
			check(c.Subscribe(topic, consumer.MessageSelector{}, func(
				_ context.Context, messages ...*primitive.MessageExt,
			) (consumer.ConsumeResult, error) {
				for _, m := range messages {
					received(name, m)
				}
				return consumer.ConsumeSuccess, nil
			}))
		}
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

func received(name string, m *primitive.MessageExt) {
	index, err := strconv.Atoi(m.GetProperty("index"))
	if err != nil {
		index = -1
	}
	sum := sha256.Sum256(m.Body)
	emit(line{
		"event": "received", "consumer": name, "topic": m.Topic, "i": index,
		"msgId": m.MsgId, "offsetMsgId": m.OffsetMsgId, "uniqueKey": m.GetProperty("UNIQ_KEY"),
		"queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset,
		"bodyLength": len(m.Body), "bodySha256": hex.EncodeToString(sum[:]),
		"tags": m.GetTags(), "keys": m.GetKeys(), "property": m.GetProperty("note"),
		"sysFlag": m.SysFlag, "reconsumeTimes": m.ReconsumeTimes,
		"bornTimestamp": m.BornTimestamp, "storeTimestamp": m.StoreTimestamp, "failed": false,
	})
}
