package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// steady sends one message after the other until the end of input, with the retries of the client's defaults.
func steady(namesrv, group, topic, first string) {
	i, err := strconv.Atoi(first)
	check(err)
	p, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithGroupName(group),
		producer.WithInstanceName(group+strconv.Itoa(os.Getpid())),
		producer.WithRetry(2),
	)
	check(err)
	check(p.Start())
	ended, sending := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sending)
		for ; ; i++ {
			select {
			case <-ended:
				return
			case <-time.After(15 * time.Millisecond):
			}
			m := primitive.NewMessage(topic, []byte{1})
			m.WithProperty("index", strconv.Itoa(i))
			result, err := p.SendSync(context.Background(), m)
			if err != nil {
				emit(line{"event": "failed", "i": i, "error": err.Error()})
				continue
			}
			fields := sendFields("steady", i, result)
			fields["broker"] = result.MessageQueue.BrokerName
			emit(fields)
		}
	}()
	emit(line{"event": "started"})
	io.Copy(io.Discard, os.Stdin)
	close(ended)
	<-sending
	check(p.Shutdown())
	emit(line{"event": "done"})
}
